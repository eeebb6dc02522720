// Kernels around the dense products of the iteration: the left operand, the
// comparison of E and L with the product; and the start of a step.
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/chunk.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

// D(M) at a column of a row.
template <typename Real>
__device__ Real RelaxedAt(const IterateView<Real>& it, int64_t row, int64_t col) {
  if (BitOf(it.fixed + row * it.words(), col)) return 0;
  const bool in_vertex = BitOf(it.previous + row * it.words(), col);
  const int64_t i = row * it.stride + col;
  const double kept = LazyValue(static_cast<double>(it.entries[i]), in_vertex, it.state->scale);
  return it.weights[i] * static_cast<Real>(1 - kept);
}

// V_{t-1} := V_t in eight columns from entry `i` on, with the entries of M whose bit toggles.
// Returns V_t there.
template <typename Real>
__device__ unsigned ToggleEight(const IterateView<Real>& it, int64_t i, int* count) {
  uint8_t& previous = reinterpret_cast<uint8_t*>(it.previous)[i / 8];
  const unsigned vertex = reinterpret_cast<const uint8_t*>(it.vertex)[i / 8];
  unsigned toggled = previous ^ vertex;
  previous = static_cast<uint8_t>(vertex);
  *count = __popc(toggled);
  const LazyScale scale = it.state->scale;
  for (; toggled != 0; toggled &= toggled - 1) {
    const int bit = __ffs(static_cast<int>(toggled)) - 1;
    Real& x = it.entries[i + bit];
    x = static_cast<Real>(ToggledEntry(static_cast<double>(x), ((vertex >> bit) & 1U) != 0, scale));
  }
  return vertex;
}

// kOperandEntries columns of a thread. kToggles: of V_t, which becomes V_{t-1}. Also where the
// iteration has stopped: the product that follows does not know, and writes U from this.
template <typename Real, bool kToggles>
__global__ void __launch_bounds__(kBlockThreads)
    PrunedKernel(IterateView<Real> it, int64_t first, LeftOperand<Real> out) {
  const int64_t row = first + blockIdx.x;
  const int64_t col =
      (static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x) * kOperandEntries;
  int count = 0;
  if (col < it.stride) {
    const int64_t i = row * it.stride + col;
    unsigned kept = kToggles && it.state->stopped == 0
                        ? ToggleEight(it, i, &count)
                        : reinterpret_cast<const uint8_t*>(it.previous)[i / 8];
    kept |= reinterpret_cast<const uint8_t*>(it.fixed)[i / 8];
    Real values[kOperandEntries];
#pragma unroll
    for (int part = 0; part < kOperandEntries; part += kChunk<Real>) {
      const Chunk<Real> weights = LoadChunk(it.weights + i + part);
#pragma unroll
      for (int k = 0; k < kChunk<Real>; ++k) {
        values[part + k] = (kept >> (part + k) & 1U) != 0 ? Real{0} : weights.v[k];
      }
    }
    out.Put(static_cast<int64_t>(blockIdx.x) * it.stride + col, col, values);
  }
  if (!kToggles) return;
  count = BlockSum(count);
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(&it.state->toggled, static_cast<unsigned long long>(count));
  }
}

// The same of M.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    RelaxedKernel(IterateView<Real> it, int64_t first, LeftOperand<Real> out) {
  const int64_t col =
      (static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x) * kOperandEntries;
  if (col >= it.stride) return;
  Real values[kOperandEntries];
#pragma unroll
  for (int k = 0; k < kOperandEntries; ++k) {
    values[k] = RelaxedAt(it, first + blockIdx.x, col + k);
  }
  out.Put(static_cast<int64_t>(blockIdx.x) * it.stride + col, col, values);
}

// partial[3 row ..]: the row's part of the loss, and of ||dense - E||^2 and
// ||dense||^2 over the free columns, on which alone anything depends.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    CompareKernel(IterateView<Real> it, int64_t first, const Real* dense, bool replace) {
  if (it.state->stopped != 0) return;
  const int64_t row = first + blockIdx.x;
  const BitWord* fixed = it.fixed + row * it.words();
  double loss = 0;
  double difference = 0;
  double norm = 0;
  for (int64_t col = threadIdx.x; col < it.cols; col += kBlockThreads) {
    const int64_t from = static_cast<int64_t>(blockIdx.x) * it.stride + col;
    const double exact = static_cast<double>(dense[from]);
    loss += static_cast<double>(RelaxedAt(it, row, col)) * exact;
    Real& entry = it.product[row * it.stride + col];
    if (!BitOf(fixed, col)) {
      const double off = exact - static_cast<double>(entry);
      difference += off * off;
      norm += exact * exact;
    }
    if (replace) entry = dense[from];
  }
  loss = BlockSum(loss);
  difference = BlockSum(difference);
  norm = BlockSum(norm);
  if (threadIdx.x == 0) {
    it.partial[3 * row] = loss;
    it.partial[3 * row + 1] = difference;
    it.partial[3 * row + 2] = norm;
  }
}

__device__ double Relative(double difference, double of) { return of > 0 ? difference / of : 0; }

__global__ void FinishCompareKernel(StepState* state, const double* partial, int64_t rows,
                                    bool replace) {
  if (state->stopped != 0) return;
  double sums[3] = {};
  for (int64_t row = threadIdx.x; row < rows; row += kBlockThreads) {
    for (int k = 0; k < 3; ++k) sums[k] += partial[3 * row + k];
  }
  for (double& sum : sums) sum = BlockSum(sum);
  if (threadIdx.x != 0) return;
  const double off = state->recurrence.relaxed_loss - sums[0];
  const double of_loss = Relative(off < 0 ? -off : off, sums[0]);
  const double of_product = sqrt(Relative(sums[1], sums[2]));
  state->drift = fmax(state->drift, fmax(of_loss, of_product));
  if (replace) state->recurrence.relaxed_loss = sums[0];
}

__global__ void BeginStepKernel(StepState* state, StepOptions options) {
  state->line_search = options.line_search ? 1 : 0;
  state->rel_gap = options.rel_gap;
  state->stopped = ReachedGap(state->recurrence, options.rel_gap) ? 1 : 0;
}

__global__ void InitialStateKernel(StepState* state, WindowPass* window) {
  *state = StepState{};
  *window = WindowPass{};
}

// M_0 as x of the lazy mask, c = 1 and P = 0.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads) InitialEntriesKernel(IterateView<Real> it) {
  const int64_t row = blockIdx.x;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kBlockThreads + threadIdx.x;
  if (col >= it.stride) return;
  it.entries[row * it.stride + col] = BitOf(it.previous + row * it.words(), col) ? 1 : 0;
}

int64_t ColumnBlocks(int64_t stride) { return (stride + kBlockThreads - 1) / kBlockThreads; }

}  // namespace

template <typename Real>
CudaError LaunchPruned(const IterateView<Real>& it, Point point, int64_t first, int64_t count,
                       const LeftOperand<Real>& out, cudaStream_t stream) {
  const int64_t blocks = ColumnBlocks(it.stride / kOperandEntries);
  const auto kernel = point == Point::kRelaxed      ? RelaxedKernel<Real>
                      : point == Point::kNextVertex ? PrunedKernel<Real, true>
                                                    : PrunedKernel<Real, false>;
  return Launch(kernel, {.blocks_x = count, .blocks_y = blocks}, stream, it, first, out);
}

template <typename Real>
CudaError LaunchCompare(const IterateView<Real>& it, int64_t first, int64_t count,
                        const Real* dense, bool replace, cudaStream_t stream) {
  return Launch(CompareKernel<Real>, {.blocks_x = count}, stream, it, first, dense, replace);
}

template <typename Real>
CudaError LaunchFinishCompare(const IterateView<Real>& it, bool replace, cudaStream_t stream) {
  return Launch(FinishCompareKernel, {}, stream, it.state, static_cast<const double*>(it.partial),
                it.rows, replace);
}

CudaError LaunchBeginStep(StepState* state, const StepOptions& options, cudaStream_t stream) {
  return Launch(BeginStepKernel, {.threads = 1}, stream, state, options);
}

template <typename Real>
CudaError LaunchBeginIteration(const IterateView<Real>& it, cudaStream_t stream) {
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(InitialStateKernel, {.threads = 1}, stream, it.state, it.scratch.window));
  return Launch(InitialEntriesKernel<Real>,
                {.blocks_x = it.rows, .blocks_y = ColumnBlocks(it.stride)}, stream, it);
}

#define SPARSEFW_INSTANTIATE(Real)                                                                \
  template CudaError LaunchPruned<Real>(const IterateView<Real>&, Point, int64_t, int64_t,        \
                                        const LeftOperand<Real>&, cudaStream_t);                  \
  template CudaError LaunchCompare<Real>(const IterateView<Real>&, int64_t, int64_t, const Real*, \
                                         bool, cudaStream_t);                                     \
  template CudaError LaunchFinishCompare<Real>(const IterateView<Real>&, bool, cudaStream_t);     \
  template CudaError LaunchBeginIteration<Real>(const IterateView<Real>&, cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
