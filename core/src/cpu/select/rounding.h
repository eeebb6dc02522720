// From the relaxed mask to a mask.
#ifndef SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_
#define SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/frank_wolfe/rounding_key.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/select/group_select.h"
#include "core/src/select/top_select.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

// Keeps the fixed set and in every group the (free capacity) largest free
// entries of the relaxed mask; of equal entries the higher saliency, then the
// higher index. Entries closer than 2^-20 may count as equal: what tells them
// apart is rounding. Counts are exact whatever state the iterate is in.
template <typename Real>
class Rounding {
 public:
  Rounding(const Iterate<Real>& iterate, const RelaxedMask<Real>& relaxed,
           const SaliencySource& saliency, const ParallelContext& context)
      : iterate_(iterate),
        relaxed_(relaxed),
        saliency_(saliency),
        context_(context),
        mask_(iterate.layer->rows, iterate.layer->cols),
        eligible_(iterate.layer->rows, iterate.layer->cols),
        positive_(static_cast<size_t>(iterate.layer->rows)) {}

  // Errors: Cancelled
  absl::StatusOr<RoundedMask> Run() {
    SPARSEFW_RETURN_IF_ERROR(context_.ForEachRow(iterate_.blocks, [&](int64_t row) {
      KeepFixed(row);
      FindEligible(row);
    }));
    if (iterate_.groups.whole_matrix) {
      SPARSEFW_RETURN_IF_ERROR(RoundWhole());
    } else {
      SPARSEFW_RETURN_IF_ERROR(
          context_.ForEachRow(iterate_.blocks, [&](int64_t row) { RoundRow(row); }));
    }
    SPARSEFW_ASSIGN_OR_RETURN(const double residual, Residual());
    return RoundedMask{std::move(mask_), residual};
  }

 private:
  // The least entry whose key differs from that of 0.
  static constexpr double kLeastEntry = 1.0 / (1 << kEntryBits);

  void KeepFixed(int64_t row) {
    std::memcpy(mask_.row(row), iterate_.fixed.row(row), static_cast<size_t>(mask_.row_bytes()));
  }

  uint64_t FreeBits(int64_t row, int64_t word) const {
    const int64_t cols = std::min<int64_t>(64, iterate_.layer->cols - word * 64);
    return ~iterate_.fixed.row(row)[word] & (~uint64_t{0} >> (64 - cols));
  }

  // Free entries that were in a vertex once. The others are 0, nearly all of them, and come last.
  void FindEligible(int64_t row) {
    const Real* const entries = relaxed_.row(row);
    for (int64_t word = 0; word < iterate_.layer->words; ++word) {
      const int64_t first = word * 64;
      const int64_t cols = std::min<int64_t>(64, iterate_.layer->cols - first);
      uint64_t moved = iterate_.previous.row(row)[word];
      for (int64_t i = 0; i < cols; ++i) moved |= uint64_t{entries[first + i] != 0} << i;
      eligible_.row(row)[word] = moved & FreeBits(row, word);
    }
    positive_[static_cast<size_t>(row)] = CountPositive(row, 0, iterate_.layer->cols);
    if (!iterate_.groups.whole_matrix && !EnoughInGroups(row)) MakeAllEligible(row);
  }

  void MakeAllEligible(int64_t row) {
    for (int64_t word = 0; word < iterate_.layer->words; ++word) {
      eligible_.row(row)[word] = FreeBits(row, word);
    }
  }

  // Whether every group has as many entries above 0 as it keeps.
  bool EnoughInGroups(int64_t row) const {
    const Groups& groups = iterate_.groups;
    const int64_t cols = iterate_.layer->cols;
    if (groups.groups_per_row == 1) {
      return positive_[static_cast<size_t>(row)] >= iterate_.FreeOf(row);
    }
    for (int64_t first = 0; first < cols; first += groups.group_cols) {
      if (CountPositive(row, first, first + groups.group_cols) < FreeCapacity(row, first)) {
        return false;
      }
    }
    return true;
  }

  int64_t FreeCapacity(int64_t row, int64_t first) const {
    int64_t free = iterate_.groups.capacity;
    for (int64_t col = first; col < first + iterate_.groups.group_cols; ++col) {
      if (iterate_.fixed.Get(row, col)) --free;
    }
    return free;
  }

  // Eligible entries in [first, end) that come before every entry of 0.
  int64_t CountPositive(int64_t row, int64_t first, int64_t end) const {
    int64_t count = 0;
    ForEachEligible(row, first, end, [&](int64_t col, bool in_vertex) {
      const auto value = static_cast<double>(relaxed_.Value(row, col, in_vertex));
      if (RoundingKey(value, 0) >= RoundingKey(kLeastEntry, 0)) ++count;
    });
    return count;
  }

  // Calls body(col, in_vertex) in ascending order.
  template <typename Body>
  void ForEachEligible(int64_t row, int64_t first, int64_t end, const Body& body) const {
    const uint64_t* vertex = iterate_.previous.row(row);
    for (int64_t word = first / 64; word * 64 < end; ++word) {
      uint64_t bits = eligible_.row(row)[word];
      if (word * 64 < first) bits &= ~uint64_t{0} << (first & 63);
      if (word * 64 + 64 > end) bits &= ~uint64_t{0} >> (64 - (end & 63));
      ForEachBit(bits, word,
                 [&](int64_t col) { body(col, ((vertex[word] >> (col & 63)) & 1) != 0); });
    }
  }
  template <typename Body>
  void ForEachEligible(int64_t row, const Body& body) const {
    ForEachEligible(row, 0, iterate_.layer->cols, body);
  }

  uint64_t KeyAt(int64_t row, int64_t col, bool in_vertex) const {
    return RoundingKey(static_cast<double>(relaxed_.Value(row, col, in_vertex)),
                       saliency_.At(row, col));
  }

  absl::Status RoundWhole() {
    int64_t fixed = 0;
    for (int64_t row = 0; row < iterate_.layer->rows; ++row) fixed += mask_.CountKeptInRow(row);
    const int64_t wanted = iterate_.groups.total_kept - fixed;
    if (std::accumulate(positive_.begin(), positive_.end(), int64_t{0}) < wanted) {
      SPARSEFW_RETURN_IF_ERROR(
          context_.ForEachRow(iterate_.blocks, [&](int64_t row) { MakeAllEligible(row); }));
    }
    const auto visit = [&](int64_t row, auto&& sink) {
      ForEachEligible(row,
                      [&](int64_t col, bool in_vertex) { sink(col, KeyAt(row, col, in_vertex)); });
    };
    const auto take = [&](int64_t row, int64_t col) { mask_.Set(row, col, true); };
    return context_.Run([&] {
      TakeTop({iterate_.blocks, kRoundingKeyBits, wanted}, visit, take);
      return absl::OkStatus();
    });
  }

  void RoundRow(int64_t row) {
    std::vector<Candidate<uint64_t>> entries;
    for (int64_t first = 0; first < iterate_.layer->cols; first += iterate_.groups.group_cols) {
      entries.clear();
      ForEachEligible(row, first, first + iterate_.groups.group_cols,
                      [&](int64_t col, bool in_vertex) {
                        entries.push_back({KeyAt(row, col, in_vertex), static_cast<uint32_t>(col)});
                      });
      if (entries.empty()) continue;
      SelectBest(FreeCapacity(row, first), entries);
      for (const auto& selected : entries) mask_.Set(row, selected.col, true);
    }
  }

  // ||M_t - round(M_t)||_1 / k; fixed entries are 1 in both.
  absl::StatusOr<double> Residual() {
    if (iterate_.groups.total_kept == 0) return 0.0;
    std::vector<double> sums(static_cast<size_t>(iterate_.layer->rows));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEachRow(iterate_.blocks, [&](int64_t row) {
      double sum = 0;
      ForEachEligible(row, [&](int64_t col, bool in_vertex) {
        const auto value = static_cast<double>(relaxed_.Value(row, col, in_vertex));
        sum += mask_.Get(row, col) ? 1 - value : value;
      });
      sums[static_cast<size_t>(row)] = sum;
    }));
    return std::accumulate(sums.begin(), sums.end(), 0.0) /
           static_cast<double>(iterate_.groups.total_kept);
  }

  const Iterate<Real>& iterate_;
  const RelaxedMask<Real>& relaxed_;
  const SaliencySource& saliency_;
  const ParallelContext& context_;
  Mask mask_;
  BitRows eligible_;               // free entries that rounding looks at
  std::vector<int64_t> positive_;  // of each row: those that count as more than 0
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SELECT_ROUNDING_H_
