// The scalars of one row of the conjugate gradients: reconstruct_kernels.h.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_GRADIENT_ROW_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_GRADIENT_ROW_H_

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/reconstruct/reconstruction_rules.h"

namespace sparsefw::cuda {

struct GradientRow {
  double rho;   // <r, z>
  double loss;  // above the floor; known without being computed: a step lowers it by alpha * rho
  double gains[kReconstructWindow];  // of the last steps
  int64_t done;
};

// solved_before: begun at weights that were solved on the mask, whose loss has no floor.
SPARSEFW_HOST_DEVICE inline GradientRow BeginRow(double rho, double loss,
                                                 bool solved_before = false) {
  GradientRow row = {};
  row.rho = rho;
  row.loss = solved_before ? loss : (1 - kReconstructFloor) * loss;
  row.done = rho > (solved_before ? kReconstructSolved * loss : 0) ? 0 : 1;
  return row;
}

// Curvature <p, p G> is 0 in the null space of a singular G_SS, where nothing
// is left to gain: the row is done.
SPARSEFW_HOST_DEVICE inline bool CanStep(const GradientRow& row, double curvature) {
  return row.done == 0 && curvature > 0;
}

// After step number `iteration` of length `alpha`; rho: of the residual that it
// left. Returns beta, the share of the old direction in the next one.
SPARSEFW_HOST_DEVICE inline double FinishGradientStep(GradientRow& row, double alpha, double rho,
                                                      int64_t iteration) {
  const double gain = alpha * row.rho;
  row.loss -= gain;
  const int64_t place = iteration % kReconstructWindow;
  double recent = 0;
  // An index that is no constant would put the row into a kernel's local memory.
  SPARSEFW_UNROLL
  for (int k = 0; k < kReconstructWindow; ++k) {
    if (k == place) row.gains[k] = gain;
    recent += row.gains[k];
  }
  const bool settled =
      iteration + 1 >= kReconstructWindow && recent <= kReconstructTolerance * row.loss;
  row.done = settled || !(rho > 0) || !(row.loss > 0) ? 1 : 0;
  const double beta = rho / row.rho;
  row.rho = rho;
  return beta;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_GRADIENT_ROW_H_
