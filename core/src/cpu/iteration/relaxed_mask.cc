#include "core/src/cpu/iteration/relaxed_mask.h"

namespace sparsefw::cpu {

template <typename Real>
RelaxedMask<Real>::RelaxedMask(const BitRows& start, int64_t rows, int64_t cols)
    : entries_(rows, cols), scales_(static_cast<size_t>(rows)) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < start.words(); ++word) {
      ForEachBit(start.row(row)[word], word, [&](int64_t col) { entries_(row, col) = 1; });
    }
  }
}

template <typename Real>
void RelaxedMask<Real>::Advance(double eta, int64_t row, const uint64_t* vertex) {
  LazyScale old;
  const Rewrite rewrite = AdvanceScale(scales_[static_cast<size_t>(row)], eta, old);
  if (rewrite != Rewrite::kNone) RewriteRow(rewrite, old, row, vertex);
}

template <typename Real>
void RelaxedMask<Real>::Fold(int64_t row, const uint64_t* vertex) {
  LazyScale& scale = scales_[static_cast<size_t>(row)];
  RewriteRow(Rewrite::kFold, scale, row, vertex);
  scale = LazyScale{};
}

template <typename Real>
void RelaxedMask<Real>::RewriteRow(Rewrite rewrite, const LazyScale& old, int64_t row,
                                   const uint64_t* vertex) {
  for (int64_t col = 0; col < entries_.cols(); ++col) {
    const bool in_vertex = GetBit(vertex, col);
    Real& x = entries_(row, col);
    x = static_cast<Real>(RewrittenEntry(rewrite, old, static_cast<double>(x), in_vertex));
  }
}

template class RelaxedMask<float>;
template class RelaxedMask<double>;

}  // namespace sparsefw::cpu
