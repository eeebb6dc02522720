// Weight reconstruction: for a given mask, the kept weights of every row that lose least.
//
//   min over w_hat supported on S of (w - w_hat) G (w - w_hat)^T
//   <=>  G_SS w_hat_S = (G w)_S       S: the kept columns of the row
//
// As cpu/reconstruct.h does it: conjugate gradients preconditioned with the
// diagonal of G on all rows of a panel at once, one dense product an iteration,
// with the limits of reconstruction_rules.h. G_SS singular: the solution found
// from w_S on. Weights of dead inputs (G_jj = 0) keep their value.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_H_

#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Result:  [rows, cols], zero outside the mask, rounded to the weights' dtype
// Numeric: iterates as Real, the products P G by SymmetricProduct (float32: three float16 products,
//          whatever ProductPrecision is), scalars in float64; the first residual and the losses
//          that decide whether a row's solution is taken, after rounding, are float64 products. The
//          same bits at every run on the same device.
// Memory:  rows in panels of 2048: (12 + 4 * sizeof(Real)) * 2048 * stride bytes on the device, 4
//          more with a guess, and what SymmetricProduct and Float64Product take
// Cost:    2 * rows * cols^2 flops an iteration, kReconstructIterations of them
//          at most, and twice that in float64
// Stop:    looked at between iterations, as is out_of_time
// Errors:  Cancelled, ResourceExhausted, what went wrong on the device
//
// guess: null, or weights to begin at, zero outside the mask, values of the dtype of the weights. A
// row that does not become better keeps it. The layer's gram may be damped then.
template <typename Real>
absl::StatusOr<Matrix<float>> ReconstructWeights(const EngineProblem& problem,
                                                 const DeviceLayer<Real>& layer, const Scale& scale,
                                                 const Mask& mask, const Matrix<float>* guess,
                                                 const std::function<bool()>& out_of_time,
                                                 const ExecutionContext& context);

// Device bytes while it runs beside the layer.
template <typename Real>
int64_t ReconstructBytes(int64_t rows, int64_t cols, bool guessed);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_RECONSTRUCT_H_
