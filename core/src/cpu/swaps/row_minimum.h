// The least of many numbers, one of which changes at a time.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_ROW_MINIMUM_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_ROW_MINIMUM_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace sparsefw::cpu {

// Tournament tree, O(log n) update, over positions 0 .. count - 1, all +infinity at first. Of
// equal values the lowest position wins.
class RowMinimum {
 public:
  explicit RowMinimum(int64_t count)
      : leaves_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)))),
        values_(static_cast<size_t>(leaves_), std::numeric_limits<double>::infinity()),
        winners_(static_cast<size_t>(2 * leaves_)) {
    for (int64_t i = 0; i < leaves_; ++i) Winner(leaves_ + i) = i;
    for (int64_t node = leaves_ - 1; node > 0; --node) Winner(node) = Play(node);
  }

  void Set(int64_t position, double value) {
    values_[static_cast<size_t>(position)] = value;
    for (int64_t node = (leaves_ + position) / 2; node > 0; node /= 2) Winner(node) = Play(node);
  }
  int64_t Least() const { return winners_[1]; }
  double Value(int64_t position) const { return values_[static_cast<size_t>(position)]; }

 private:
  int64_t& Winner(int64_t node) { return winners_[static_cast<size_t>(node)]; }
  int64_t Play(int64_t node) {
    const int64_t left = Winner(2 * node);
    const int64_t right = Winner(2 * node + 1);
    return Value(right) < Value(left) ? right : left;
  }

  int64_t leaves_;
  std::vector<double> values_;
  std::vector<int64_t> winners_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_ROW_MINIMUM_H_
