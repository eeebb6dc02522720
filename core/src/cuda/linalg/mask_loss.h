// The loss of a mask or of other weights, from scratch.
//
//   L(M) = <D, D G>,   D = W.(1 - M)
//
// Summed over stripes of G's rows: <D, D[:, stripe] G[stripe, :]>. G is on the
// device; it need not be symmetric, for the form sees (G + G^T)/2 only.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_MASK_LOSS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_MASK_LOSS_H_

#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cuda {

// Shapes:  weights [rows, cols] and gram [cols, cols] on the device as they were
//          given, mask [rows, cols]
// Numeric: every product and sum in float64; `scale` only keeps it in range.
//          Below 0 by rounding only, or where G is not positive semi-definite.
// Memory:  on the device about 8 * 512 * (3 * cols + 1024) bytes
// Stop:    looked at after every 512 rows of G
// Cost:    2 * rows * cols^2 flops in float64
// Errors:  Cancelled, ResourceExhausted, what went wrong on the device
absl::StatusOr<double> MaskLoss(const RawMatrix& weights, const RawMatrix& gram, const Mask& mask,
                                const Scale& scale, const ExecutionContext& context);

// MaskLoss of `to` less that of `from`, by core/src/linalg/loss_change_rules.h; gram must be
// symmetric bit for bit. In float64, in a fixed order.
//
// Cost:    2 * cols flops and a row of G, from memory or its cache, for every weight that only one
//          of the masks keeps
// Stop:    looked at every 2^34 / cols^2 rows: predicted below a millisecond, with 4 % of them read
// Errors:  Cancelled, ResourceExhausted, what went wrong on the device
absl::StatusOr<double> LossChange(const RawMatrix& weights, const RawMatrix& gram, const Mask& from,
                                  const Mask& to, const Scale& scale,
                                  const ExecutionContext& context);
int64_t LossChangeBytes(int64_t rows, int64_t cols);

// Whether G_jk = G_kj bit for bit. Waits for the stream.
absl::StatusOr<bool> IsSymmetric(const RawMatrix& gram, const ExecutionContext& context);

// Device bytes of MaskLoss or LossOfWeights beside G.
int64_t LossBytes(int64_t rows, int64_t cols, bool of_weights);

// ||(W - kept) X||^2: the same with D = W - kept, kept [rows, cols] on the host, which is
// uploaded: 4 * rows * cols bytes more.
absl::StatusOr<double> LossOfWeights(const RawMatrix& weights, const RawMatrix& gram,
                                     const Matrix<float>& kept, const Scale& scale,
                                     const ExecutionContext& context);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_MASK_LOSS_H_
