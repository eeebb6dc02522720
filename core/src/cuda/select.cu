// The next vertex, and rounding: both are selections of the largest keys.
#include "core/src/cuda/iterate.h"
#include "core/src/cuda/select_groups.cuh"
#include "core/src/cuda/select_whole.cuh"
#include "core/src/cuda/sources.cuh"

namespace sparsefw::cuda {
namespace {

template <typename Source, typename Real>
absl::Status SelectBy(const Source& source, const Iterate<Real>& it, const BitWord* also,
                      BitWord* bits, cudaStream_t stream) {
  return it.groups.whole_matrix ? SelectWhole(source, it, it.free_total, also, bits, stream)
                                : SelectInGroups(source, it, also, bits, stream);
}

__global__ void FinishStepKernel(IterationState* state, const double* partial, int64_t count) {
  if (state->stopped != 0) return;
  const double sum = SumOf(partial, count);
  if (threadIdx.x == 0) EvaluateVertex(*state, sum);
}

template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) MoveKernel(Iterate<Real> it) {
  if (it.state->stopped != 0) return;
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col < it.cols) MoveEntry(it, row, col);
}

}  // namespace

template <typename Real>
absl::Status LaunchSelect(const Iterate<Real>& it, Motion motion, cudaStream_t stream) {
  const ScoreSource<Real> source = {it, motion == Motion::kMove};
  return SelectBy(source, it, nullptr, it.vertex, stream);
}

template <typename Real>
absl::Status LaunchMove(const Iterate<Real>& it, cudaStream_t stream) {
  return Launch(MoveKernel<Real>,
                {.blocks_x = it.rows, .blocks_y = (it.cols + kBlockThreads - 1) / kBlockThreads},
                stream, it);
}

template <typename Real>
absl::Status LaunchFinishStep(const Iterate<Real>& it, cudaStream_t stream) {
  return Launch(FinishStepKernel, {}, stream, it.state, static_cast<const double*>(it.partial),
                RoundingBlocks(it));
}

template <typename Real>
absl::Status LaunchRound(const Iterate<Real>& it, const float* saliency, BitWord* mask,
                         cudaStream_t stream) {
  const RoundSource<Real> source = {it, saliency};
  return SelectBy(source, it, it.fixed, mask, stream);
}

#define SPARSEFW_INSTANTIATE(Real)                                                      \
  template absl::Status LaunchSelect<Real>(const Iterate<Real>&, Motion, cudaStream_t); \
  template absl::Status LaunchMove<Real>(const Iterate<Real>&, cudaStream_t);           \
  template absl::Status LaunchFinishStep<Real>(const Iterate<Real>&, cudaStream_t);     \
  template absl::Status LaunchRound<Real>(const Iterate<Real>&, const float*, BitWord*, \
                                          cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
