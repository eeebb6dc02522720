// U_t = U_{t-1} + (D(V_t) - D(V_{t-1})) G: one row of G for every coordinate
// that entered or left the vertex.
//
// A block takes one row of U and kColumnsOfBlock columns of it. Blocks that run
// at the same time share the columns, so that the part of G that they read
// stays in the L2 cache: docs/adr/0011 has the figures.
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/chunk.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/linalg/toggle_list.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kColumnsOfThread = static_cast<int>(kColumnsOfBlock) / kBlockThreads;

// The change of D(V) where a weight enters or leaves the vertex.
template <typename Real>
__device__ Real DeltaOf(const IterateView<Real>& it, int64_t row, int64_t col) {
  const Real weight = it.weights[row * it.stride + col];
  return BitOf(it.vertex + row * it.words(), col) ? -weight : weight;
}

// b changes by <Delta, U_{t-1} + U_t>, a sum over the toggled coordinates alone.
template <typename Real>
__device__ double AddToRow(const IterateView<Real>& it, int64_t row, int64_t col, Real sum) {
  Real& entry = it.vertex_product[row * it.stride + col];
  const Real before = entry;
  const Real after = before + sum;
  entry = after;
  const BitWord* previous = it.previous + row * it.words();
  const BitWord* vertex = it.vertex + row * it.words();
  if (BitOf(previous, col) == BitOf(vertex, col)) return 0;
  return static_cast<double>(DeltaOf(it, row, col)) *
         (static_cast<double>(before) + static_cast<double>(after));
}

template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) VertexUpdateKernel(IterateView<Real> it) {
  if (it.state->stopped != 0) return;
  __shared__ ToggleList<Real> list;
  const int64_t row = blockIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kColumnsOfBlock + threadIdx.x;
  Real sums[kColumnsOfThread] = {};
  bool any = false;
  for (int64_t word = 0; word < it.words(); word += kListedWords) {
    const int total = ListToggles(
        it.previous + row * it.words(), it.vertex + row * it.words(), it.words(), word,
        [&](int64_t col) { return DeltaOf(it, row, col); }, list);
    any = any || total > 0;
    for (int k = 0; k < total; ++k) {
      const Real* gram_row = it.gram + static_cast<int64_t>(list.columns[k]) * it.stride;
      const Real delta = list.deltas[k];
      // All of them first, so that the loads are under way at once.
      Real values[kColumnsOfThread];
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; ++c) {
        const int64_t col = first + c * kBlockThreads;
        values[c] = col < it.stride ? gram_row[col] : Real{0};
      }
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; ++c) sums[c] += delta * values[c];
    }
    __syncthreads();
  }
  double change = 0;
  if (any) {
    for (int c = 0; c < kColumnsOfThread; ++c) {
      const int64_t col = first + c * kBlockThreads;
      if (col < it.stride) change += AddToRow(it, row, col, sums[c]);
    }
    change = BlockSum(change);
  }
  if (threadIdx.x == 0) it.partial[row * gridDim.y + blockIdx.y] = change;
}

// V_{t-1} := V_t, and the entries of M whose bit toggles.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) ToggleKernel(IterateView<Real> it) {
  if (it.state->stopped != 0) return;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  int count = 0;
  if (index < it.rows * it.words()) {
    const BitWord vertex = it.vertex[index];
    BitWord toggled = it.previous[index] ^ vertex;
    it.previous[index] = vertex;
    count = __popc(toggled);
    const LazyScale scale = it.state->scale;
    while (toggled != 0) {
      const int bit = __ffs(static_cast<int>(toggled)) - 1;
      toggled &= toggled - 1;
      // A word's 32 columns are consecutive in the padded rows, too.
      Real& x = it.entries[index * 32 + bit];
      x = static_cast<Real>(
          ToggledEntry(static_cast<double>(x), ((vertex >> bit) & 1U) != 0, scale));
    }
  }
  count = BlockSum(count);
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(&it.state->toggled, static_cast<unsigned long long>(count));
  }
}

template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) CountTogglesKernel(IterateView<Real> it) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  int count = 0;
  if (index < it.rows * it.words()) count = __popc(it.previous[index] ^ it.vertex[index]);
  count = BlockSum(count);
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(&it.state->pending, static_cast<unsigned long long>(count));
  }
}

template <typename Real>
int64_t WordBlocks(const IterateView<Real>& it) {
  return (it.rows * it.words() + kBlockThreads - 1) / kBlockThreads;
}

// What the sum over `partial` is to b.
enum class VertexLoss { kAll, kChange };

__global__ void TakeStepKernel(StepState* state, const double* partial, int64_t count,
                               VertexLoss loss, bool wide) {
  const bool stopped = state->stopped != 0;
  if (stopped && loss == VertexLoss::kChange) return;
  const double sum = SumOf(partial, count);
  if (threadIdx.x != 0) return;
  state->recurrence.vertex_loss =
      loss == VertexLoss::kAll ? sum : state->recurrence.vertex_loss + sum;
  // The dense product before it has written U anew all the same.
  if (stopped) return;
  const double eta = wide ? ChooseStep<double>(*state) : ChooseStep<float>(*state);
  AdvanceMask(*state, eta);
  TakeStep(state->recurrence, eta);
}

// b alone, without a step, and L = b.
__global__ void VertexLossKernel(StepState* state, const double* partial, int64_t count) {
  const double sum = SumOf(partial, count);
  if (threadIdx.x == 0) state->recurrence.vertex_loss = state->recurrence.relaxed_loss = sum;
}

// partial[row] = <D(previous), U> of the row.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) RowLossKernel(IterateView<Real> it) {
  const int64_t row = blockIdx.x;
  const BitWord* fixed = it.fixed + row * it.words();
  const BitWord* previous = it.previous + row * it.words();
  double sum = 0;
#pragma unroll 2
  for (int64_t col = threadIdx.x * kChunk<Real>; col < it.stride;
       col += int64_t{kBlockThreads} * kChunk<Real>) {
    const Chunk<Real> weights = LoadChunk(it.weights + row * it.stride + col);
    const Chunk<Real> products = LoadChunk(it.vertex_product + row * it.stride + col);
    const BitWord kept = (fixed[col / 32] | previous[col / 32]) >> (col % 32);
#pragma unroll
    for (int k = 0; k < kChunk<Real>; ++k) {
      if ((kept >> k & 1U) != 0) continue;
      sum += static_cast<double>(weights.v[k]) * static_cast<double>(products.v[k]);
    }
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) it.partial[row] = sum;
}

template <typename Real>
CudaError LaunchStep(const IterateView<Real>& it, int64_t count, VertexLoss loss,
                     cudaStream_t stream) {
  return Launch(TakeStepKernel, {}, stream, it.state, static_cast<const double*>(it.partial), count,
                loss, sizeof(Real) == sizeof(double));
}

}  // namespace

template <typename Real>
CudaError LaunchCountToggles(const IterateView<Real>& it, cudaStream_t stream) {
  return Launch(CountTogglesKernel<Real>, {.blocks_x = WordBlocks(it)}, stream, it);
}

template <typename Real>
CudaError LaunchVertexUpdate(const IterateView<Real>& it, cudaStream_t stream) {
  const int64_t chunks = ColumnChunks(it.stride);
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(VertexUpdateKernel<Real>, {.blocks_x = it.rows, .blocks_y = chunks}, stream, it));
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(ToggleKernel<Real>, {.blocks_x = WordBlocks(it)}, stream, it));
  return LaunchStep(it, it.rows * chunks, VertexLoss::kChange, stream);
}

template <typename Real>
CudaError LaunchVertexLoss(const IterateView<Real>& it, cudaStream_t stream) {
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(RowLossKernel<Real>, {.blocks_x = it.rows}, stream, it));
  return Launch(VertexLossKernel, {}, stream, it.state, static_cast<const double*>(it.partial),
                it.rows);
}

template <typename Real>
CudaError LaunchTakeStep(const IterateView<Real>& it, cudaStream_t stream) {
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(RowLossKernel<Real>, {.blocks_x = it.rows}, stream, it));
  return LaunchStep(it, it.rows, VertexLoss::kAll, stream);
}

#define SPARSEFW_INSTANTIATE(Real)                                                     \
  template CudaError LaunchCountToggles<Real>(const IterateView<Real>&, cudaStream_t); \
  template CudaError LaunchVertexUpdate<Real>(const IterateView<Real>&, cudaStream_t); \
  template CudaError LaunchVertexLoss<Real>(const IterateView<Real>&, cudaStream_t);   \
  template CudaError LaunchTakeStep<Real>(const IterateView<Real>&, cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
