// The loss of a mask or of other weights on the CPU, from scratch, by the engine's own product.
//
//   L(M) = sum_i d_i G d_i^T = sum_i sum_k d_ik (d_i H)_k,   D = W.(1 - M)
//
// H is the upper triangle of G + G^T with half of its diagonal: half the products of D G, and
// no other rounding than that of a sum. A BLAS takes more time (it has no kernel for every
// processor) and memory.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_

#include "absl/status/statusor.h"
#include "core/src/linalg/scale.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Shapes:  weights [rows, cols], gram [cols, cols] of float32 or float64, mask [rows, cols]
// Numeric: products and sums in float64, `scale` only keeps them in range; the same bits for any
//          number of threads. Below 0 by rounding only, or where G is not positive semi-definite.
// Memory:  blocks of 512 rows, 8 * 512 * cols bytes, and 8 * 64 * (cols + 512) of every thread
// Cost:    about rows * cols^2 flops in float64
// Errors:  Cancelled
absl::StatusOr<double> HalfProductLoss(ConstMatrixView weights, ConstMatrixView gram,
                                       const Mask& mask, const Scale& scale,
                                       const ParallelContext& context);

// ||(W - kept) X||^2: the same with D = W - kept, kept [rows, cols].
absl::StatusOr<double> HalfProductLossOfWeights(ConstMatrixView weights, ConstMatrixView gram,
                                                const Matrix<float>& kept, const Scale& scale,
                                                const ParallelContext& context);

// Bytes of the scratch of either, for the estimate of an engine's memory. Every thread has a panel.
int64_t HalfProductLossBytes(int64_t rows, int64_t cols, int threads);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_HALF_PRODUCT_LOSS_H_
