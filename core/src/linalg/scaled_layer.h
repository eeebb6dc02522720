// W and G in the engine's own form: aligned, padded, scaled.
#ifndef SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_
#define SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/src/linalg/panels.h"
#include "core/src/linalg/scale.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

absl::StatusOr<Scale> ChooseScale(ConstMatrixView weights, ConstMatrixView gram,
                                  const ParallelContext& context);

// Real is float or double. Columns are padded with zeros to whole 64-bit words
// of bits: kernels.h.
template <typename Real, typename Gram>
struct Layer {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t words = 0;     // 64 columns each
  Matrix<Real> weights;  // [rows, stride]
  Gram gram;             // [cols, stride], (G + G^T)/2

  int64_t stride() const { return words * 64; }
};

// G by rows, for whoever takes one row of it at a time; and in panels, for the
// iteration.
template <typename Real>
using ScaledLayer = Layer<Real, Matrix<Real>>;
template <typename Real>
using PanelLayer = Layer<Real, Panels<Real>>;

template <typename Real>
absl::StatusOr<ScaledLayer<Real>> LoadScaled(ConstMatrixView weights, ConstMatrixView gram,
                                             const Scale& scale, const ParallelContext& context);
template <typename Real>
absl::StatusOr<PanelLayer<Real>> LoadPanels(ConstMatrixView weights, ConstMatrixView gram,
                                            const Scale& scale, const ParallelContext& context);

// Rows that together fill some 128 KiB of one float32 matrix: W, E and U of a
// block stay in a core's L2 cache.
RowBlocks BlocksOf(int64_t rows, int64_t stride);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_SCALED_LAYER_H_
