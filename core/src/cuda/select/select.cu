// The next vertex, and rounding: both are selections of the largest keys.
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/sources.cuh"
#include "core/src/cuda/select/select_groups.cuh"
#include "core/src/cuda/select/select_whole.cuh"
#include "core/src/cuda/select/select_window.cuh"

namespace sparsefw::cuda {
namespace {

template <typename Real>
__global__ void FinishStepKernel(StepState* state, const double* partial, int64_t count,
                                 WindowPass* window, const Selection* selection) {
  if (state->stopped != 0) return;
  const double sum = SumOf(partial, count);
  if (threadIdx.x != 0) return;
  Evaluate(*state, sum);
  if (window == nullptr) return;
  MoveWindow(*window, *selection, ScoreOfKey<Real>(selection->threshold.key));
}

template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) MoveKernel(IterateView<Real> it) {
  if (it.state->stopped != 0) return;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i >= it.rows * it.stride) return;
  StoreMoved(it, ReadStep(it), i, it.product[i], it.vertex_product[i]);
}

}  // namespace

template <typename Real>
CudaError LaunchSelect(const IterateView<Real>& it, Motion motion, cudaStream_t stream) {
  const ScoreSource<Real> source = {it, motion == Motion::kMove};
  if (!it.groups.whole_matrix) return SelectInGroups(source, it, nullptr, it.vertex, stream);
  SPARSEFW_RETURN_IF_CUDA_ERROR(LaunchWindow(source, it.free_total, stream));
  return SelectWhole(source, it, it.free_total, true, nullptr, it.vertex, stream);
}

template <typename Real>
CudaError LaunchMove(const IterateView<Real>& it, cudaStream_t stream) {
  const int64_t entries = it.rows * it.stride;
  return Launch(MoveKernel<Real>, {.blocks_x = (entries + kBlockThreads - 1) / kBlockThreads},
                stream, it);
}

template <typename Real>
CudaError LaunchFinishStep(const IterateView<Real>& it, cudaStream_t stream) {
  return Launch(FinishStepKernel<Real>, {}, stream, it.state,
                static_cast<const double*>(it.partial), RoundingBlocks(it),
                it.groups.whole_matrix ? it.scratch.window : nullptr,
                static_cast<const Selection*>(it.scratch.selection));
}

template <typename Real>
CudaError LaunchRound(const IterateView<Real>& it, const float* saliency, BitWord* mask,
                      cudaStream_t stream) {
  const RoundSource<Real> source = {it, saliency};
  return it.groups.whole_matrix
             ? SelectWhole(source, it, it.free_total, false, it.fixed, mask, stream)
             : SelectInGroups(source, it, it.fixed, mask, stream);
}

#define SPARSEFW_INSTANTIATE(Real)                                                       \
  template CudaError LaunchSelect<Real>(const IterateView<Real>&, Motion, cudaStream_t); \
  template CudaError LaunchMove<Real>(const IterateView<Real>&, cudaStream_t);           \
  template CudaError LaunchFinishStep<Real>(const IterateView<Real>&, cudaStream_t);     \
  template CudaError LaunchRound<Real>(const IterateView<Real>&, const float*, BitWord*, \
                                       cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
