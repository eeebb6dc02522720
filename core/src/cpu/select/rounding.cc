#include "core/src/cpu/select/rounding.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/src/frank_wolfe/rounding_key.h"
#include "core/src/select/group_select.h"
#include "core/src/select/top_select.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

template <typename Real>
class Rounding {
 public:
  Rounding(const Iterate<Real>& iterate, const RelaxedMask<Real>& relaxed, ConstMatrixView saliency,
           const ParallelContext& context)
      : iterate_(iterate),
        relaxed_(relaxed),
        saliency_(saliency),
        context_(context),
        mask_(iterate.layer->rows, iterate.layer->cols) {}

  absl::StatusOr<RoundedMask> Run() {
    SPARSEFW_RETURN_IF_ERROR(ForEachRow([&](int64_t row) { KeepFixed(row); }));
    if (iterate_.groups.whole_matrix) {
      SPARSEFW_RETURN_IF_ERROR(RoundWhole());
    } else {
      SPARSEFW_RETURN_IF_ERROR(ForEachRow([&](int64_t row) { RoundRow(row); }));
    }
    SPARSEFW_ASSIGN_OR_RETURN(const double residual, Residual());
    return RoundedMask{std::move(mask_), residual};
  }

 private:
  template <typename Body>
  absl::Status ForEachRow(const Body& body) {
    return context_.ForEach(iterate_.blocks.count(), [&](int64_t block) {
      for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
        body(row);
      }
    });
  }

  void KeepFixed(int64_t row) {
    std::memcpy(mask_.row(row), iterate_.fixed.row(row), static_cast<size_t>(mask_.row_bytes()));
  }

  // Calls body(col, in_vertex) for the free columns of a row, in ascending order.
  template <typename Body>
  void ForEachFree(int64_t row, const Body& body) const {
    const uint64_t* fixed = iterate_.fixed.row(row);
    const uint64_t* vertex = iterate_.previous.row(row);
    for (int64_t word = 0; word < iterate_.layer->words; ++word) {
      const int64_t cols = std::min<int64_t>(64, iterate_.layer->cols - word * 64);
      const uint64_t free = ~fixed[word] & (~uint64_t{0} >> (64 - cols));
      ForEachBit(free, word,
                 [&](int64_t col) { body(col, ((vertex[word] >> (col & 63)) & 1) != 0); });
    }
  }

  uint64_t KeyAt(int64_t row, int64_t col, bool in_vertex) const {
    return RoundingKey(static_cast<double>(relaxed_.Value(row, col, in_vertex)),
                       saliency_.row<float>(row)[col]);
  }

  absl::Status RoundWhole() {
    int64_t fixed = 0;
    for (int64_t row = 0; row < iterate_.layer->rows; ++row) fixed += mask_.CountKeptInRow(row);
    const auto visit = [&](int64_t row, auto&& sink) {
      ForEachFree(row, [&](int64_t col, bool in_vertex) { sink(col, KeyAt(row, col, in_vertex)); });
    };
    const auto take = [&](int64_t row, int64_t col) { mask_.Set(row, col, true); };
    return context_.Run([&] {
      TakeTop({iterate_.blocks, kRoundingKeyBits, iterate_.groups.total_kept - fixed}, visit, take);
      return absl::OkStatus();
    });
  }

  void RoundRow(int64_t row) {
    std::vector<Candidate<uint64_t>> entries;
    for (int64_t first = 0; first < iterate_.layer->cols; first += iterate_.groups.group_cols) {
      entries.clear();
      int64_t free = iterate_.groups.capacity;
      for (int64_t col = first; col < first + iterate_.groups.group_cols; ++col) {
        if (iterate_.fixed.Get(row, col)) {
          --free;
        } else {
          entries.push_back(
              {KeyAt(row, col, iterate_.previous.Get(row, col)), static_cast<uint32_t>(col)});
        }
      }
      SelectBest(free, entries);
      for (const auto& selected : entries) mask_.Set(row, selected.col, true);
    }
  }

  // ||M_t - round(M_t)||_1 / k; fixed entries are 1 in both.
  absl::StatusOr<double> Residual() {
    if (iterate_.groups.total_kept == 0) return 0.0;
    std::vector<double> sums(static_cast<size_t>(iterate_.layer->rows));
    SPARSEFW_RETURN_IF_ERROR(ForEachRow([&](int64_t row) {
      double sum = 0;
      ForEachFree(row, [&](int64_t col, bool in_vertex) {
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
  const ConstMatrixView saliency_;
  const ParallelContext& context_;
  Mask mask_;
};

}  // namespace

template <typename Real>
absl::StatusOr<RoundedMask> RoundMask(const Iterate<Real>& iterate,
                                      const RelaxedMask<Real>& relaxed, ConstMatrixView saliency,
                                      const ParallelContext& context) {
  return Rounding<Real>(iterate, relaxed, saliency, context).Run();
}

template absl::StatusOr<RoundedMask> RoundMask(const Iterate<float>&, const RelaxedMask<float>&,
                                               ConstMatrixView, const ParallelContext&);
template absl::StatusOr<RoundedMask> RoundMask(const Iterate<double>&, const RelaxedMask<double>&,
                                               ConstMatrixView, const ParallelContext&);

}  // namespace sparsefw::cpu
