// Wide groups: swap_kernels.h.
#include <cmath>

#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/cuda/swaps/swap_row.cuh"

namespace sparsefw::cuda {
namespace {

// The sweep of one row by one block. Every thread holds the same values.
template <typename Real>
class RowSweep {
 public:
  __device__ RowSweep(const SwapState<Real>& state, int64_t index, double* row_product)
      : row_(state, index, row_product),
        reach_(state.reach),
        order_(state.order + index * state.stride),
        scratch_(state.scratch + index * state.stride),
        group_cols_(state.group_cols),
        progress_(state.progress[index]) {}

  __device__ void Run(int steps) {
    bool known = false;  // the bounds
    for (int step = 0; step < steps && progress_.done == 0; ++step) {
      if (!known) FindBounds();
      known = true;
      if (progress_.listed == 0) ListCandidates();
      const int64_t p = NextCandidate();
      if (p < 0) {
        EndSweep();
        continue;
      }
      const double out = row_.Out(p);  // before any thread is on its way to change it
      const Term partner = FindPartner(p);
      const double change = out + partner.value;
      if (!(change < -row_.tolerance)) continue;
      Swap(p, partner.col, change);
      known = false;
    }
  }

  __device__ const RowProgress& progress() const { return progress_; }
  __device__ const double* product() const { return row_.product; }

 private:
  __device__ int64_t FirstOfThread() const { return progress_.first + threadIdx.x; }
  __device__ int64_t End() const { return progress_.first + group_cols_; }

  __device__ void FindBounds() {
    PartnerBounds bounds = {kInfinity, 0};
    for (int64_t col = FirstOfThread(); col < End(); col += kBlockThreads) {
      if (row_.Kept(col)) continue;
      const double weight = row_.Weight(col);
      bounds = Wider(bounds, {row_.In(col), weight * weight * row_.diagonal[col]});
    }
    bounds = BlockReduce(
        bounds, [](const PartnerBounds& a, const PartnerBounds& b) { return Wider(a, b); });
    least_in_ = bounds.least_in;
    norm_ = sqrt(bounds.largest_square);
  }

  __device__ bool IsCandidate(int64_t col) const {
    if (!row_.Movable(col)) return false;
    const double reach = fabs(row_.Weight(col)) * reach_[col];
    return MayImprove(row_.Out(col), least_in_, reach, norm_, row_.tolerance);
  }

  // Those that may leave the group, by what that costs now; of equal ones the lower index first.
  __device__ void ListCandidates() {
    int count = 0;
    for (int64_t base = progress_.first; base < End(); base += kBlockThreads) {
      const int64_t col = base + threadIdx.x;
      const int mine = col < End() && IsCandidate(col) ? 1 : 0;
      int total = 0;
      const int place = count + BlockExclusiveScan(mine, &total);
      if (mine != 0) scratch_[place] = static_cast<int32_t>(col);
      count += total;
    }
    __syncthreads();
    for (int base = 0; base < count; base += kBlockThreads) {
      const int mine = base + static_cast<int>(threadIdx.x);
      const int place = PlaceOf(mine, count);
      if (mine < count) order_[place] = scratch_[mine];
    }
    __syncthreads();
    progress_.listed = count;
    progress_.place = 0;
  }

  // How many of the candidates come before number `mine`.
  __device__ int PlaceOf(int mine, int count) const {
    __shared__ double costs[kBlockThreads];
    const double cost = mine < count ? row_.Out(scratch_[mine]) : 0;
    int before = 0;
    for (int base = 0; base < count; base += kBlockThreads) {
      const int other = base + static_cast<int>(threadIdx.x);
      __syncthreads();
      if (other < count) costs[threadIdx.x] = row_.Out(scratch_[other]);
      __syncthreads();
      const int end = count - base < kBlockThreads ? count - base : kBlockThreads;
      for (int k = 0; k < end; ++k) {
        before += costs[k] < cost || (costs[k] == cost && base + k < mine) ? 1 : 0;
      }
    }
    return before;
  }

  // The first that is left and still may improve; -1: there is none.
  __device__ int64_t NextCandidate() {
    constexpr int kNone = 0x7FFFFFFF;
    for (; progress_.place < progress_.listed; progress_.place += kBlockThreads) {
      const int place = progress_.place + static_cast<int>(threadIdx.x);
      const bool may = place < progress_.listed && IsCandidate(order_[place]);
      const int found =
          BlockReduce(may ? place : kNone, [](int a, int b) { return a < b ? a : b; });
      if (found == kNone) continue;
      progress_.place = found + 1;
      return order_[found];
    }
    return -1;
  }

  __device__ Term FindPartner(int64_t p) const {
    const double weight = row_.Weight(p);
    Term best = NoTerm();
    for (int64_t col = FirstOfThread(); col < End(); col += kBlockThreads) {
      if (row_.Kept(col)) continue;
      const double in = WithPartner(row_.In(col), weight, row_.Weight(col), row_.Gram(p, col));
      best = BetterIn(best, {in, col});
    }
    return BlockReduce(best, [](const Term& a, const Term& b) { return BetterIn(a, b); });
  }

  __device__ void Swap(int64_t p, int64_t q, double change) {
    row_.Swap(p, q);
    ++progress_.swaps;
    progress_.loss_change += change;
    progress_.moved = 1;
    progress_.proven = 0;
  }

  // Nothing is left to try in the group: once more if something has moved,
  // else on to the next group.
  __device__ void EndSweep() {
    progress_.listed = progress_.place = 0;
    if (progress_.moved == 0) {
      progress_.proven += group_cols_;
      progress_.first = End() < row_.cols ? End() : 0;
      progress_.done = progress_.proven >= row_.cols ? 1 : 0;
    }
    progress_.moved = 0;
  }

  SwapRow<Real> row_;
  const double* reach_;
  int32_t* order_;
  int32_t* scratch_;
  int64_t group_cols_;
  RowProgress progress_;
  double least_in_ = 0;
  double norm_ = 0;
};

// One block a row.
template <typename Real>
__global__ void __launch_bounds__(kBlockThreads)
    SweepRowsKernel(SwapState<Real> state, int steps, int* active) {
  const int64_t index = blockIdx.x;
  if (state.progress[index].done != 0) return;
  double* row_product = state.product + index * state.stride;
  const bool shared = state.shared_bytes > 0;
  RowSweep<Real> sweep(state, index, TakeProduct(row_product, state.stride, shared));
  sweep.Run(steps);
  ReturnProduct(sweep.product(), row_product, state.stride, shared);
  if (threadIdx.x != 0) return;
  state.progress[index] = sweep.progress();
  if (sweep.progress().done == 0) atomicAdd(active, 1);
}

}  // namespace

template <typename Real>
CudaError LaunchSweepRows(const SwapState<Real>& state, int steps, int* active,
                          cudaStream_t stream) {
  const LaunchShape shape = {.blocks_x = state.rows, .shared_bytes = state.shared_bytes};
  return Launch(SweepRowsKernel<Real>, shape, stream, state, steps, active);
}

template CudaError LaunchSweepRows(const SwapState<float>&, int, int*, cudaStream_t);
template CudaError LaunchSweepRows(const SwapState<double>&, int, int*, cudaStream_t);

}  // namespace sparsefw::cuda
