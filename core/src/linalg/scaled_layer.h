// W and G in the engine's own form: aligned, padded, scaled.
#ifndef SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_
#define SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "core/src/linalg/panels.h"
#include "core/src/linalg/scale.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

absl::StatusOr<Scale> ChooseScale(ConstMatrixView weights, ConstMatrixView gram,
                                  const ParallelContext& context);

// The scale for an iteration in float32 that reads the caller's W where it lies. With W as it
// is and G times 2^(2 weights_exponent + gram_exponent), scores and losses are those of `scale`
// bit for bit; E and U are 2^weights_exponent times as large. `scale` itself where W must be copied
// all the same (its dtype or padding), where max|W| is not in [2^-8, 2^25): E, at most
// 2^(83 + weights_exponent), must stay in range for cols = 2^17; or where G's factor would be too
// large.
Scale ScaleInPlace(ConstMatrixView weights, const Scale& scale);

// W: a matrix of its own, or the caller's.
template <typename Real>
class LayerWeights {
 public:
  LayerWeights() = default;
  LayerWeights(Matrix<Real> own)  // NOLINT(google-explicit-constructor)
      : own_(std::move(own)), data_(own_.data()), stride_(own_.cols()) {}
  // Its dtype is that of Real. Rows need not be aligned. What it refers to must outlive it.
  explicit LayerWeights(ConstMatrixView weights)
      : data_(weights.row<Real>(0)), stride_(weights.stride()) {}

  const Real* row(int64_t row) const { return data_ + row * stride_; }
  const Real& operator()(int64_t row, int64_t col) const { return this->row(row)[col]; }

 private:
  Matrix<Real> own_;
  const Real* data_ = nullptr;
  int64_t stride_ = 0;
};

// Real is float or double. Columns are padded with zeros to whole 64-bit words
// of bits: kernels.h.
template <typename Real, typename Weights, typename Gram>
struct Layer {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t words = 0;  // 64 columns each
  Weights weights;    // [rows, stride]
  Gram gram;          // [cols, stride], (G + G^T)/2

  int64_t stride() const { return words * 64; }
};

// G by rows, for whoever takes one row of it at a time; and in panels, for the
// iteration.
template <typename Real>
using ScaledLayer = Layer<Real, Matrix<Real>, Matrix<Real>>;
template <typename Real>
using PanelLayer = Layer<Real, LayerWeights<Real>, Panels<Real>>;

template <typename Real>
absl::StatusOr<ScaledLayer<Real>> LoadScaled(ConstMatrixView weights, ConstMatrixView gram,
                                             const Scale& scale, const ParallelContext& context);
// Refers to `weights`, which must outlive it, where `scale` leaves them as they are and no padding
// is needed.
template <typename Real>
absl::StatusOr<PanelLayer<Real>> LoadPanels(ConstMatrixView weights, ConstMatrixView gram,
                                            const Scale& scale, const ParallelContext& context);

// Rows that together fill some 128 KiB of one float32 matrix: W, E and U of a
// block stay in a core's L2 cache.
RowBlocks BlocksOf(int64_t rows, int64_t stride);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_
