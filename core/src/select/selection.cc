#include "core/src/select/selection.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "core/src/parallel/parallel_context.h"
#include "core/src/select/ordered_key.h"
#include "sparsefw/mutex.h"

namespace sparsefw {
namespace {

int64_t RowsOfBlock(int64_t cols) { return std::max<int64_t>(1, 65536 / cols); }

// Calls visit(row, col, key) for every candidate, blocks of rows in parallel.
// begin(first_row) makes the state of a block, end(state) takes it back.
class Candidates {
 public:
  Candidates(ConstMatrixView scores, const Mask* candidates)
      : scores_(scores), candidates_(candidates) {}

  template <typename Visit>
  void ForEachOfRow(int64_t row, int64_t first, int64_t last, Visit visit) const {
    const float* scores = scores_.row<float>(row);
    for (int64_t col = first; col < last; ++col) {
      if (candidates_ == nullptr || candidates_->Get(row, col)) visit(col, OrderedKey(scores[col]));
    }
  }

  int64_t rows() const { return scores_.rows(); }
  int64_t cols() const { return scores_.cols(); }

 private:
  ConstMatrixView scores_;
  const Mask* candidates_;
};

constexpr int kDigitBits = 11;
using Histogram = std::array<int64_t, 1 << kDigitBits>;

// Counts the digit at `shift` of the keys whose higher bits are those of `prefix`.
Histogram CountDigits(const Candidates& candidates, uint64_t prefix, int shift) {
  Mutex mutex;
  Histogram total{};
  ParallelFor(candidates.rows(), RowsOfBlock(candidates.cols()), [&](int64_t begin, int64_t end) {
    Histogram counts{};
    for (int64_t row = begin; row < end; ++row) {
      candidates.ForEachOfRow(row, 0, candidates.cols(), [&](int64_t, uint64_t key) {
        if (key >> (shift + kDigitBits) == prefix) ++counts[(key >> shift) % counts.size()];
      });
    }
    const MutexLock lock(mutex);
    for (size_t digit = 0; digit < counts.size(); ++digit) total[digit] += counts[digit];
  });
  return total;
}

// The count-th largest key, and how many of the keys equal to it are taken.
struct Threshold {
  uint64_t key = 0;
  int64_t equal_taken = 0;
};

Threshold FindThreshold(const Candidates& candidates, int64_t count) {
  uint64_t prefix = 0;
  int64_t remaining = count;
  for (int shift = 2 * kDigitBits; shift >= 0; shift -= kDigitBits) {
    const Histogram counts = CountDigits(candidates, prefix, shift);
    size_t digit = counts.size() - 1;
    while (digit > 0 && counts[digit] < remaining) remaining -= counts[digit--];
    prefix = prefix << kDigitBits | digit;
  }
  return {prefix, remaining};
}

// How many of the keys equal to the threshold each row takes: the last rows first.
std::vector<int64_t> ShareEqualKeys(const Candidates& candidates, const Threshold& threshold) {
  std::vector<int64_t> shares(static_cast<size_t>(candidates.rows()));
  ParallelFor(candidates.rows(), RowsOfBlock(candidates.cols()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t equal = 0;
      candidates.ForEachOfRow(row, 0, candidates.cols(),
                              [&](int64_t, uint64_t key) { equal += key == threshold.key; });
      shares[static_cast<size_t>(row)] = equal;
    }
  });
  int64_t left = threshold.equal_taken;
  for (auto share = shares.rbegin(); share != shares.rend(); ++share) {
    *share = std::min(*share, left);
    left -= *share;
  }
  return shares;
}

void KeepRow(const Candidates& candidates, int64_t row, uint64_t threshold, int64_t equal_taken,
             Mask& kept) {
  std::vector<int64_t> equal;
  candidates.ForEachOfRow(row, 0, candidates.cols(), [&](int64_t col, uint64_t key) {
    if (key > threshold) kept.Set(row, col, true);
    if (key == threshold && equal_taken > 0) equal.push_back(col);
  });
  for (int64_t i = std::ssize(equal) - equal_taken; i < std::ssize(equal); ++i) {
    kept.Set(row, equal[static_cast<size_t>(i)], true);
  }
}

// Key above, column below: one comparison orders both.
constexpr int kColumnBits = 32;

void KeepGroup(const Candidates& candidates, int64_t row, int64_t first, int64_t last,
               int64_t count, std::vector<uint64_t>& keys, Mask& kept) {
  keys.clear();
  candidates.ForEachOfRow(row, first, last, [&](int64_t col, uint64_t key) {
    keys.push_back(key << kColumnBits | static_cast<uint64_t>(col));
  });
  const int64_t taken = std::min(count, std::ssize(keys));
  if (taken < std::ssize(keys)) {
    std::nth_element(keys.begin(), keys.begin() + taken, keys.end(), std::greater<>());
  }
  for (int64_t i = 0; i < taken; ++i) {
    const uint64_t column_mask = (uint64_t{1} << kColumnBits) - 1;
    kept.Set(row, static_cast<int64_t>(keys[static_cast<size_t>(i)] & column_mask), true);
  }
}

}  // namespace

void KeepTopOfMatrix(ConstMatrixView scores, const Mask* candidates, int64_t count, Mask& kept) {
  if (count <= 0) return;
  const Candidates all(scores, candidates);
  const Threshold threshold = FindThreshold(all, count);
  const std::vector<int64_t> shares = ShareEqualKeys(all, threshold);
  ParallelFor(all.rows(), RowsOfBlock(all.cols()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      KeepRow(all, row, threshold.key, shares[static_cast<size_t>(row)], kept);
    }
  });
}

void KeepTopOfGroups(ConstMatrixView scores, const Mask* candidates, int64_t group_cols,
                     int64_t count, Mask& kept) {
  const Candidates all(scores, candidates);
  ParallelFor(all.rows(), RowsOfBlock(all.cols()), [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> keys;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t first = 0; first < all.cols(); first += group_cols) {
        KeepGroup(all, row, first, first + group_cols, count, keys, kept);
      }
    }
  });
}

}  // namespace sparsefw
