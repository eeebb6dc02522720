// The relaxed mask M_t, kept lazily: core/src/frank_wolfe/lazy_mask.h. Every row
// has a scale of its own, so that rows can be at different t.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/src/frank_wolfe/lazy_mask.h"
#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Numeric: x in Real, the scale in float64. The rounding of x at a toggle shrinks
//          with c as everything older does, so in float32 the error of M_t stays
//          near 1e-7 whatever t.
// Threads: safe for distinct rows.
template <typename Real>
class RelaxedMask {
 public:
  RelaxedMask() = default;
  // M_0 = start, with V_{-1} = start.
  RelaxedMask(const BitRows& start, int64_t rows, int64_t cols)
      : entries_(rows, cols), scales_(static_cast<size_t>(rows)) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t word = 0; word < start.words(); ++word) {
        ForEachBit(start.row(row)[word], word, [&](int64_t col) { entries_(row, col) = 1; });
      }
    }
  }

  // The vertex bit of the entry toggles now; `in_vertex` is the new value. M_t
  // itself does not change by that.
  void Toggle(int64_t row, int64_t col, bool in_vertex) {
    Real& x = entries_(row, col);
    x = static_cast<Real>(
        ToggledEntry(static_cast<double>(x), in_vertex, scales_[static_cast<size_t>(row)]));
  }

  // M_t -> M_{t+1} in one row; eta in [0, 1]. `vertex` is V_t of that row,
  // toggles already made.
  void Advance(double eta, int64_t row, const uint64_t* vertex) {
    LazyScale old;
    const Rewrite rewrite = AdvanceScale(scales_[static_cast<size_t>(row)], eta, old);
    if (rewrite != Rewrite::kNone) RewriteRow(rewrite, old, row, vertex);
  }

  // Rewrites the x of a row so that c = 1 and P = 0; M does not change.
  void Fold(int64_t row, const uint64_t* vertex) {
    LazyScale& scale = scales_[static_cast<size_t>(row)];
    RewriteRow(Rewrite::kFold, scale, row, vertex);
    scale = LazyScale{};
  }

  // M_t; `in_vertex` is the entry's bit in the vertex last toggled to.
  Real Value(int64_t row, int64_t col, bool in_vertex) const {
    return static_cast<Real>(LazyValue(static_cast<double>(entries_(row, col)), in_vertex,
                                       scales_[static_cast<size_t>(row)]));
  }

  // x of a row, for whoever toggles entries elsewhere and brings them back.
  Real* row(int64_t row) { return entries_.row(row); }
  const Real* row(int64_t row) const { return entries_.row(row); }

  // Both together are M, V known.
  std::span<Real> entries() { return entries_.span(); }
  std::span<LazyScale> scales() { return scales_; }

 private:
  void RewriteRow(Rewrite rewrite, const LazyScale& old, int64_t row, const uint64_t* vertex) {
    for (int64_t col = 0; col < entries_.cols(); ++col) {
      const bool in_vertex = GetBit(vertex, col);
      Real& x = entries_(row, col);
      x = static_cast<Real>(RewrittenEntry(rewrite, old, static_cast<double>(x), in_vertex));
    }
  }

  Matrix<Real> entries_;           // x
  std::vector<LazyScale> scales_;  // of each row
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_
