// Exact selection of the largest keys of a whole matrix, with the order of
// ties fixed: of equal keys the higher row-major index wins.
//
// Radix selection: each pass counts one digit of the keys that agree with the
// digits found so far. Counts are integers, so the result does not depend on the
// order of the blocks.
#ifndef SPARSEFW_CORE_SRC_SELECT_TOP_SELECT_H_
#define SPARSEFW_CORE_SRC_SELECT_TOP_SELECT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mutex.h"

namespace sparsefw {

struct TopSelectArgs {
  RowBlocks blocks;
  int key_bits = 32;  // the keys are below 2^key_bits
  int64_t count = 0;  // how many to take
};

// visit(row, sink) calls sink(col, key) for every eligible coordinate of the
// row, in ascending order of columns, the same ones every time.
// take(row, col) is called once for each of the `count` largest, or for all if
// there are fewer; rows concurrently.
template <typename Visit, typename Take>
class TopSelection {
 public:
  TopSelection(const TopSelectArgs& args, const Visit& visit, const Take& take)
      : args_(args), visit_(visit), take_(take) {}

  // Returns the least key taken where there are `count`, else nothing.
  std::optional<uint64_t> Run() {
    if (args_.count <= 0) return std::nullopt;
    FindThreshold();
    ShareTies();
    TakeAll();
    return ties_ == 0 ? std::optional(threshold_) : std::nullopt;
  }

 private:
  static constexpr int kDigitBits = 11;
  static constexpr size_t kDigits = size_t{1} << kDigitBits;
  using Histogram = std::array<int64_t, kDigits>;

  template <typename Body>
  void ForEachBlock(const Body& body) const {
    ParallelFor(args_.blocks.count(), 1, [&](int64_t block, int64_t) { body(block); });
  }

  // After it `threshold_` is the count-th largest key, `ties_` how many of the keys
  // equal to it are taken (0 and more than there are where there are fewer), and
  // `ties_of_block_` how many there are.
  void FindThreshold() {
    int shift = (args_.key_bits + kDigitBits - 1) / kDigitBits * kDigitBits;
    ties_ = args_.count;
    while (shift > 0) {
      shift -= kDigitBits;
      const Histogram histogram = CountDigits(shift, threshold_);
      size_t digit = kDigits - 1;
      while (digit > 0 && histogram[digit] < ties_) ties_ -= histogram[digit--];
      threshold_ = (threshold_ << kDigitBits) | digit;
    }
    ties_of_block_.assign(static_cast<size_t>(args_.blocks.count()), 0);
    CountTies();
  }

  void CountTies() {
    ForEachBlock([&](int64_t block) {
      int64_t ties = 0;
      for (int64_t row = args_.blocks.begin(block); row < args_.blocks.end(block); ++row) {
        visit_(row, [&](int64_t, uint64_t key) { ties += key == threshold_ ? 1 : 0; });
      }
      ties_of_block_[static_cast<size_t>(block)] = ties;
    });
  }

  Histogram CountDigits(int shift, uint64_t prefix) const {
    Mutex mutex;
    Histogram histogram{};
    ForEachBlock([&](int64_t block) {
      Histogram local{};
      for (int64_t row = args_.blocks.begin(block); row < args_.blocks.end(block); ++row) {
        visit_(row, [&](int64_t, uint64_t key) {
          const uint64_t digits = key >> shift;
          if (digits >> kDigitBits == prefix) ++local[digits % kDigits];
        });
      }
      const MutexLock lock(mutex);
      for (size_t digit = 0; digit < kDigits; ++digit) histogram[digit] += local[digit];
    });
    return histogram;
  }

  // How many of its own ties each block takes: the last blocks first. `ties_` keeps the number that
  // was not found.
  void ShareTies() {
    for (auto ties = ties_of_block_.rbegin(); ties != ties_of_block_.rend(); ++ties) {
      *ties = std::min(*ties, ties_);
      ties_ -= *ties;
    }
  }

  void TakeAll() const {
    ForEachBlock([&](int64_t block) {
      std::vector<int64_t> tied;
      int64_t ties_left = ties_of_block_[static_cast<size_t>(block)];
      for (int64_t row = args_.blocks.end(block) - 1; row >= args_.blocks.begin(block); --row) {
        tied.clear();
        visit_(row, [&](int64_t col, uint64_t key) {
          if (key > threshold_) take_(row, col);
          if (key == threshold_) tied.push_back(col);
        });
        for (; !tied.empty() && ties_left > 0; --ties_left, tied.pop_back()) {
          take_(row, tied.back());
        }
      }
    });
  }

  const TopSelectArgs args_;
  const Visit& visit_;
  const Take& take_;
  uint64_t threshold_ = 0;
  int64_t ties_ = 0;
  std::vector<int64_t> ties_of_block_;
};

// Threads: as ParallelFor; the result does not depend on their number.
// Cost:    two visits, and one for every 11 bits of the keys.
template <typename Visit, typename Take>
std::optional<uint64_t> TakeTop(const TopSelectArgs& args, const Visit& visit, const Take& take) {
  return TopSelection<Visit, Take>(args, visit, take).Run();
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_TOP_SELECT_H_
