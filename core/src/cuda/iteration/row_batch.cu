// Several open-loop iterations of the rows one by one, for patterns whose groups
// lie within rows: nothing but the sums of the losses ever joins two rows.
//
// A block takes a row through all iterations of a batch. E, U, W and the bits of
// the row stay in shared memory; what is read from outside is G, a row of it for
// every toggle. docs/adr/0015 has what that saves.
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/select/select_groups.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kBatchColumns = 8;  // of a thread at a time, whose sums are registers
constexpr int kListed = 1024;     // toggles listed at a time

// A row in shared memory.
template <typename Real>
struct SharedRow {
  int64_t row;
  Real* product;         // E, [stride]
  Real* vertex_product;  // U
  Real* weights;
  Real* deltas;       // [kListed]: of the toggles,
  int* columns;       // and where they are
  BitWord* fixed;     // [stride / 32]
  BitWord* previous;  // V_{t-1}
  BitWord* vertex;    // V_t

  __device__ static SharedRow At(char* memory, int64_t row, int64_t stride) {
    SharedRow result;
    result.row = row;
    result.product = reinterpret_cast<Real*>(memory);
    result.vertex_product = result.product + stride;
    result.weights = result.vertex_product + stride;
    result.deltas = result.weights + stride;
    result.columns = reinterpret_cast<int*>(result.deltas + kListed);
    result.fixed = reinterpret_cast<BitWord*>(result.columns + kListed);
    result.previous = result.fixed + stride / 32;
    result.vertex = result.previous + stride / 32;
    return result;
  }
  static int64_t Bytes(int64_t stride) {
    return int64_t{sizeof(Real)} * (3 * stride + kListed) + int64_t{sizeof(int)} * kListed +
           3 * stride / 8;
  }

  // As select_groups.cuh has it.
  __device__ uint64_t Key(int64_t col) const {
    return BitOf(fixed, col) ? 0 : ScoreKey(weights[col] * product[col]);
  }
  __device__ Real DeltaOf(int64_t col) const {
    return BitOf(vertex, col) ? -weights[col] : weights[col];
  }
};

enum class Copy { kIn, kOut };

template <typename Real>
__device__ void CopyRow(const IterateView<Real>& it, const SharedRow<Real>& row, Copy way) {
  const int64_t first = row.row * it.stride;
  const int64_t first_word = row.row * it.words();
#pragma unroll 4
  for (int64_t col = threadIdx.x; col < it.stride; col += kBlockThreads) {
    if (way == Copy::kIn) {
      row.product[col] = it.product[first + col];
      row.vertex_product[col] = it.vertex_product[first + col];
      row.weights[col] = it.weights[first + col];
    } else {
      it.product[first + col] = row.product[col];
      it.vertex_product[first + col] = row.vertex_product[col];
    }
  }
  for (int64_t word = threadIdx.x; word < it.words(); word += kBlockThreads) {
    if (way == Copy::kIn) {
      row.fixed[word] = it.fixed[first_word + word];
      row.previous[word] = it.previous[first_word + word];
      row.vertex[word] = it.vertex[first_word + word];
    } else {
      it.previous[first_word + word] = row.previous[word];
      it.vertex[first_word + word] = row.vertex[word];
    }
  }
  __syncthreads();
}

// Toggles number `first` to first + kListed of the row, in ascending order. Returns
// how many the row has. A thread has one word of the row.
template <typename Real>
__device__ int ListRow(const IterateView<Real>& it, const SharedRow<Real>& row, int first) {
  const int64_t word = threadIdx.x;
  BitWord toggled = word < it.words() ? row.previous[word] ^ row.vertex[word] : 0;
  int total = 0;
  int position = BlockExclusiveScan(__popc(toggled), &total) - first;
  for (; toggled != 0; toggled &= toggled - 1, ++position) {
    if (position < 0 || position >= kListed) continue;
    const int64_t col = word * 32 + __ffs(static_cast<int>(toggled)) - 1;
    row.columns[position] = static_cast<int>(col);
    row.deltas[position] = row.DeltaOf(col);
  }
  __syncthreads();
  return total;
}

// U += Delta G. Returns the thread's part of what b changes by.
template <typename Real>
__device__ double UpdateRow(const IterateView<Real>& it, const SharedRow<Real>& row, int total) {
  double change = 0;
  if (total == 0) return 0;
  for (int64_t begin = 0; begin < it.stride; begin += kBatchColumns * kBlockThreads) {
    Real sums[kBatchColumns] = {};
    for (int first = 0; first < total; first += kListed) {
      if (total > kListed) {
        __syncthreads();
        ListRow(it, row, first);
      }
      const int count = total - first < kListed ? total - first : kListed;
      for (int k = 0; k < count; ++k) {
        const Real* gram_row = it.gram + static_cast<int64_t>(row.columns[k]) * it.stride;
        const Real delta = row.deltas[k];
        // All of them first, so that the loads are under way at once.
        Real values[kBatchColumns];
#pragma unroll
        for (int c = 0; c < kBatchColumns; ++c) {
          const int64_t col = begin + c * kBlockThreads + threadIdx.x;
          values[c] = col < it.stride ? gram_row[col] : Real{0};
        }
#pragma unroll
        for (int c = 0; c < kBatchColumns; ++c) sums[c] += delta * values[c];
      }
    }
    for (int c = 0; c < kBatchColumns; ++c) {
      const int64_t col = begin + c * kBlockThreads + threadIdx.x;
      if (col >= it.stride) break;
      const Real before = row.vertex_product[col];
      const Real after = before + sums[c];
      row.vertex_product[col] = after;
      if (BitOf(row.previous, col) == BitOf(row.vertex, col)) continue;
      change += static_cast<double>(row.DeltaOf(col)) *
                (static_cast<double>(before) + static_cast<double>(after));
    }
  }
  return change;
}

// V_{t-1} := V_t, and the entries of M whose bit toggles.
template <typename Real>
__device__ void ToggleRow(const IterateView<Real>& it, const SharedRow<Real>& row,
                          const LazyScale& scale) {
  for (int64_t word = threadIdx.x; word < it.words(); word += kBlockThreads) {
    const BitWord vertex = row.vertex[word];
    BitWord toggled = row.previous[word] ^ vertex;
    row.previous[word] = vertex;
    row.vertex[word] = 0;
    for (; toggled != 0; toggled &= toggled - 1) {
      const int bit = __ffs(static_cast<int>(toggled)) - 1;
      Real& x = it.entries[row.row * it.stride + word * 32 + bit];
      x = static_cast<Real>(
          ToggledEntry(static_cast<double>(x), ((vertex >> bit) & 1U) != 0, scale));
    }
  }
}

template <typename Real>
__device__ void MoveRow(const IterateView<Real>& it, const SharedRow<Real>& row,
                        const StepState& state) {
  const Real eta = static_cast<Real>(state.recurrence.step_size);
  for (int64_t col = threadIdx.x; col < it.stride; col += kBlockThreads) {
    row.product[col] += eta * (row.vertex_product[col] - row.product[col]);
  }
  if (state.rewrite == Rewrite::kNone) return;
  for (int64_t col = threadIdx.x; col < it.stride; col += kBlockThreads) {
    Real& x = it.entries[row.row * it.stride + col];
    x = static_cast<Real>(RewrittenEntry(state, static_cast<double>(x), BitOf(row.previous, col)));
  }
}

// Returns the thread's part of a = <D(V), E>.
template <typename Real>
__device__ double SelectRow(const SharedRow<Real>& row, const GroupArgs& args) {
  SelectGroups(row, kScoreKeyBits<Real>, args, row.row, row.vertex);
  double inner = 0;
  for (int64_t col = threadIdx.x; col < args.cols; col += kBlockThreads) {
    if (BitOf(row.fixed, col) || BitOf(row.vertex, col)) continue;
    inner += static_cast<double>(row.weights[col]) * static_cast<double>(row.product[col]);
  }
  return inner;
}

// sums: the changes of b, [count, rows], then a, likewise, then how many toggle in
// all iterations, [rows].
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads, 3)  // a fourth would spill registers
    RowBatchKernel(IterateView<Real> it, GroupArgs args, int count, double* sums) {
  if (it.state->stopped != 0) return;
  const auto row = SharedRow<Real>::At(DynamicShared<char>(), blockIdx.x, it.stride);
  __shared__ __align__(16) char state_memory[sizeof(StepState)];
  StepState& state = *reinterpret_cast<StepState*>(state_memory);
  if (threadIdx.x == 0) state = *it.state;
  CopyRow(it, row, Copy::kIn);
  int toggled = 0;
  for (int step = 0; step < count; ++step) {
    const int total = ListRow(it, row, 0);
    toggled += total;
    const double change = BlockSum(UpdateRow(it, row, total));
    ToggleRow(it, row, state.scale);
    __syncthreads();
    if (threadIdx.x == 0) {
      sums[static_cast<int64_t>(step) * it.rows + row.row] = change;
      state.recurrence.step_size = ChooseStep<Real>(state);
      AdvanceMask(state, state.recurrence.step_size);
      ++state.recurrence.iteration;
    }
    __syncthreads();
    MoveRow(it, row, state);
    __syncthreads();
    const double inner = BlockSum(SelectRow(row, args));
    if (threadIdx.x == 0) sums[static_cast<int64_t>(count + step) * it.rows + row.row] = inner;
    __syncthreads();
  }
  CopyRow(it, row, Copy::kOut);
  if (threadIdx.x == 0) {
    sums[2 * static_cast<int64_t>(count) * it.rows + row.row] = static_cast<double>(toggled);
  }
}

// A block for every sum over the rows; into totals[2 count + 1].
__global__ void __launch_bounds__(kBlockThreads)
    BatchTotalKernel(const StepState* state, const double* sums, int64_t rows, double* totals) {
  if (state->stopped != 0) return;
  const double total = SumOf(sums + static_cast<int64_t>(blockIdx.x) * rows, rows);
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

// The scalars of the iterations, one after the other.
template <typename Real>
__global__ void FinishBatchKernel(StepState* state, const double* totals, int count) {
  if (state->stopped != 0) return;
  for (int step = 0; step < count; ++step) {
    state->recurrence.vertex_loss += totals[step];
    const double eta = ChooseStep<Real>(*state);
    AdvanceMask(*state, eta);
    TakeStep(state->recurrence, eta);
    Evaluate(*state, totals[count + step]);
  }
  state->toggled += static_cast<unsigned long long>(totals[2 * count]);
}

}  // namespace

template <typename Real>
bool CanBatchRows(const IterateView<Real>& it) {
  return !it.groups.whole_matrix && it.words() <= kBlockThreads &&
         SharedRow<Real>::Bytes(it.stride) <= it.shared_bytes;
}

template <typename Real>
CudaError LaunchRowBatch(const IterateView<Real>& it, int64_t count, cudaStream_t stream) {
  const auto steps = static_cast<int>(count);
  double* totals = it.row_sums + (2 * kMostBatch + 1) * it.rows;
  const GroupArgs args = GroupArgsOf(it);
  const LaunchShape shape = {
      .blocks_x = it.rows, .shared_bytes = static_cast<size_t>(SharedRow<Real>::Bytes(it.stride))};
  SPARSEFW_RETURN_IF_CUDA_ERROR(
      Launch(RowBatchKernel<Real>, shape, stream, it, args, steps, it.row_sums));
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(BatchTotalKernel, {.blocks_x = 2 * count + 1}, stream,
                                       static_cast<const StepState*>(it.state),
                                       static_cast<const double*>(it.row_sums), it.rows, totals));
  return Launch(FinishBatchKernel<Real>, {.threads = 1}, stream, it.state,
                static_cast<const double*>(totals), steps);
}

#define SPARSEFW_INSTANTIATE(Real)                            \
  template bool CanBatchRows<Real>(const IterateView<Real>&); \
  template CudaError LaunchRowBatch<Real>(const IterateView<Real>&, int64_t, cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
