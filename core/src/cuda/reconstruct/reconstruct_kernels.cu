#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/reconstruct/reconstruct_kernels.h"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"

namespace sparsefw::cuda {
namespace {

template <typename Real>
__device__ double Masked(const ReconstructedRows<Real>& panel, int64_t row, int64_t col) {
  if (!BitOf(panel.kept + row * (panel.stride / 32), col)) return 0;
  return static_cast<double>(panel.weights[row * panel.stride + col]);
}

// Dividing by a power of two is exact, as long as the result is in range.
template <typename Real>
__device__ void TakeMasked(const ReconstructedRows<Real>& panel, int64_t row) {
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    const int64_t index = row * panel.stride + col;
    panel.result[index] = panel.guess != nullptr
                              ? panel.guess[index]
                              : static_cast<float>(Masked(panel, row, col) / panel.factor);
  }
}

// One block a row; so below.
template <typename Real>
__global__ void TakeMaskedKernel(ReconstructedRows<Real> panel) {
  TakeMasked(panel, blockIdx.x);
}

template <typename Real>
__global__ void KeepBetterKernel(ReconstructedRows<Real> panel, const double* masked_losses,
                                 const double* losses) {
  const int64_t row = blockIdx.x;
  double squares = 0;
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    const int64_t index = row * panel.stride + col;
    const double missing = static_cast<double>(panel.weights[index]) -
                           static_cast<double>(panel.result[index]) * panel.factor;
    squares += missing * missing * static_cast<double>(panel.gram[col * (panel.stride + 1)]);
  }
  const double rounding = panel.gram_rounding * BlockSum(squares);
  if (!LosesLess(losses[row], rounding, masked_losses[row])) TakeMasked(panel, row);
}

template <typename Real>
__global__ void TakeSolutionKernel(ReconstructedRows<Real> panel, const Real* solution) {
  const int64_t row = blockIdx.x;
  const BitWord* kept = panel.kept + row * (panel.stride / 32);
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    if (!BitOf(kept, col)) continue;
    const int64_t index = row * panel.stride + col;
    const double start = panel.guess != nullptr
                             ? static_cast<double>(panel.guess[index]) * panel.factor
                             : static_cast<double>(panel.weights[index]);
    const double weight = start + static_cast<double>(solution[index]);
    panel.result[index] = RoundedTo(panel.dtype, weight / panel.factor);
  }
}

template <typename Real>
__global__ void PreconditionerKernel(const Real* gram, int64_t cols, int64_t stride,
                                     Real* preconditioner) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (col >= stride) return;
  const Real diagonal = col < cols ? gram[col * stride + col] : Real{0};
  preconditioner[col] = diagonal > 0 ? 1 / diagonal : Real{0};
}

// One block a row.
template <typename Real>
__global__ void BeginKernel(GradientPanel<Real> panel, const double* residual, const double* losses,
                            int* unfinished) {
  const int64_t row = blockIdx.x;
  const int64_t offset = row * panel.stride;
  const BitWord* kept = panel.kept + row * (panel.stride / 32);
  double rho = 0;
  for (int64_t col = threadIdx.x; col < panel.stride; col += kBlockThreads) {
    // The mask's padding is 0.
    const Real r = BitOf(kept, col) ? static_cast<Real>(residual[offset + col]) : Real{0};
    const Real z = panel.preconditioner[col] * r;
    panel.solution[offset + col] = 0;
    panel.residual[offset + col] = r;
    panel.direction[offset + col] = z;
    rho += static_cast<double>(r) * static_cast<double>(z);
  }
  rho = BlockSum(rho);
  if (threadIdx.x != 0) return;
  panel.rows[row] = BeginRow(rho, losses[row], panel.solved_before);
  if (panel.rows[row].done == 0) atomicAdd(unfinished, 1);
}

// One block a position.
template <typename Real>
__global__ void StepKernel(GradientPanel<Real> panel, int64_t iteration, int* unfinished) {
  const int64_t position = blockIdx.x;
  const int64_t index = panel.active[position];
  GradientRow row = panel.rows[index];
  if (row.done != 0) return;
  Real* p = panel.direction + position * panel.stride;
  const Real* product = panel.product + position * panel.stride;
  const Real scale = panel.product_scale == nullptr ? Real{1} : panel.product_scale[position];
  double curvature = 0;
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    curvature += static_cast<double>(p[col]) * static_cast<double>(scale * product[col]);
  }
  curvature = BlockSum(curvature);
  if (!CanStep(row, curvature)) {
    if (threadIdx.x == 0) panel.rows[index].done = 1;
    return;
  }
  const double alpha = row.rho / curvature;
  const auto step = static_cast<Real>(alpha);
  const BitWord* kept = panel.kept + index * (panel.stride / 32);
  Real* d = panel.solution + index * panel.stride;
  Real* r = panel.residual + index * panel.stride;
  double rho = 0;
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    if (!BitOf(kept, col)) continue;
    d[col] += step * p[col];
    r[col] -= step * (scale * product[col]);
    const Real z = panel.preconditioner[col] * r[col];
    rho += static_cast<double>(r[col]) * static_cast<double>(z);
  }
  rho = BlockSum(rho);
  const auto beta = static_cast<Real>(FinishGradientStep(row, alpha, rho, iteration));
  for (int64_t col = threadIdx.x; col < panel.cols; col += kBlockThreads) {
    if (BitOf(kept, col)) p[col] = panel.preconditioner[col] * r[col] + beta * p[col];
  }
  if (threadIdx.x != 0) return;
  panel.rows[index] = row;
  if (row.done == 0) atomicAdd(unfinished, 1);
}

// One block a row.
template <typename Real>
__global__ void GatherKernel(const Real* direction, const int* from, int64_t stride, Real* to) {
  const Real* source = direction + from[blockIdx.x] * stride;
  Real* target = to + blockIdx.x * stride;
  for (int64_t col = threadIdx.x; col < stride; col += kBlockThreads) target[col] = source[col];
}

}  // namespace

template <typename Real>
CudaError LaunchTakeMasked(const ReconstructedRows<Real>& panel, cudaStream_t stream) {
  return Launch(TakeMaskedKernel<Real>, {.blocks_x = panel.rows}, stream, panel);
}

template <typename Real>
CudaError LaunchKeepBetter(const ReconstructedRows<Real>& panel, const double* masked_losses,
                           const double* losses, cudaStream_t stream) {
  return Launch(KeepBetterKernel<Real>, {.blocks_x = panel.rows}, stream, panel, masked_losses,
                losses);
}

template <typename Real>
CudaError LaunchTakeSolution(const ReconstructedRows<Real>& panel, const Real* solution,
                             cudaStream_t stream) {
  return Launch(TakeSolutionKernel<Real>, {.blocks_x = panel.rows}, stream, panel, solution);
}

template <typename Real>
CudaError LaunchPreconditioner(const GradientPanel<Real>& panel, const Real* gram,
                               cudaStream_t stream) {
  const int64_t blocks = (panel.stride + kBlockThreads - 1) / kBlockThreads;
  return Launch(PreconditionerKernel<Real>, {.blocks_x = blocks}, stream, gram, panel.cols,
                panel.stride, panel.preconditioner);
}

template <typename Real>
CudaError LaunchBeginGradients(const GradientPanel<Real>& panel, int64_t count,
                               const double* residual, const double* losses, int* unfinished,
                               cudaStream_t stream) {
  return Launch(BeginKernel<Real>, {.blocks_x = count}, stream, panel, residual, losses,
                unfinished);
}

template <typename Real>
CudaError LaunchGradientStep(const GradientPanel<Real>& panel, int64_t count, int64_t iteration,
                             int* unfinished, cudaStream_t stream) {
  return Launch(StepKernel<Real>, {.blocks_x = count}, stream, panel, iteration, unfinished);
}

template <typename Real>
CudaError LaunchGather(const Real* direction, const int* from, int64_t count, int64_t stride,
                       Real* to, cudaStream_t stream) {
  return Launch(GatherKernel<Real>, {.blocks_x = count}, stream, direction, from, stride, to);
}

#define SPARSEFW_INSTANTIATE(Real)                                                                \
  template CudaError LaunchTakeMasked(const ReconstructedRows<Real>&, cudaStream_t);              \
  template CudaError LaunchKeepBetter(const ReconstructedRows<Real>&, const double*,              \
                                      const double*, cudaStream_t);                               \
  template CudaError LaunchTakeSolution(const ReconstructedRows<Real>&, const Real*,              \
                                        cudaStream_t);                                            \
  template CudaError LaunchPreconditioner(const GradientPanel<Real>&, const Real*, cudaStream_t); \
  template CudaError LaunchBeginGradients(const GradientPanel<Real>&, int64_t, const double*,     \
                                          const double*, int*, cudaStream_t);                     \
  template CudaError LaunchGradientStep(const GradientPanel<Real>&, int64_t, int64_t, int*,       \
                                        cudaStream_t);                                            \
  template CudaError LaunchGather(const Real*, const int*, int64_t, int64_t, Real*, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
