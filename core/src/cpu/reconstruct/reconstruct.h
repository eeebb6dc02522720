// Weight reconstruction: for a given mask, the kept weights of every row that
// lose least.
//
//   min over w_hat supported on S of (w - w_hat) G (w - w_hat)^T
//   <=>  G_SS w_hat_S = (G w)_S       S: the kept columns of the row
//
// Solved as G_SS d = (D G)_S with w_hat = w_S + d, D = W.(1 - M), by preconditioned
// conjugate gradients (nystrom_preconditioner.h) on all rows of a panel at
// once: one dense product P G an iteration. Every step lowers the row's loss
// by alpha * rho, so the loss is known without being computed; a row is done
// when the steps of its window lowered it by less than kReconstructTolerance of
// itself.
//
// G_SS singular: the system is consistent (G is positive semi-definite) and
// conjugate gradients find a solution from d = 0 on. Weights of dead inputs
// (G_jj = 0) keep their value.
#ifndef SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_RECONSTRUCT_H_
#define SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_RECONSTRUCT_H_

#include <functional>

#include "absl/status/statusor.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// What a solve begins from. Solved for H = G + damping mean(diag G) I in place of G.
struct ReconstructStart {
  // Zero outside the mask, values of the dtype of the weights; a row that does not become better
  // keeps it. Null: W on the mask.
  const Matrix<float>* guess = nullptr;
  double damping = 0;
};

// Result:  [rows, cols], zero outside the mask, rounded to the weights' dtype
// Numeric: iterates and the products P G in `precision`, scalars in float64; the
//          first residual and the losses that decide whether a row's solution
//          is taken, after rounding, are float64 products
// Threads: the same bits for any number of threads, unless out of time
// Memory:  ReconstructBytes; rows in panels of 2048
// Cost:    2 * rows * cols^2 flops an iteration, kReconstructIterations
//          of them at most, and twice that in float64
// Errors:  Cancelled
absl::StatusOr<Matrix<float>> ReconstructWeights(Precision precision, const EngineProblem& problem,
                                                 const Scale& scale, const Mask& mask,
                                                 const ReconstructStart& start,
                                                 const std::function<bool()>& out_of_time,
                                                 const ParallelContext& context);

// G becomes H = G + damping mean(diag G) I.
template <typename Real>
void AddDamping(ScaledLayer<Real>& layer, double damping);

int64_t ReconstructBytes(int64_t rows, int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_RECONSTRUCT_H_
