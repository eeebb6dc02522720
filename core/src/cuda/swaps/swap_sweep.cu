// Wide groups: swap_row.h.
#include <cmath>

#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_row.cuh"
#include "core/src/cuda/swaps/swap_row.h"

namespace sparsefw::cuda {
namespace {

// The result of one pass over a group for a p.
struct Found {
  Term partner;  // the best q for it
  Term next;     // the candidate after it
};

// The sweep of one row by one block. Every thread holds the same values.
template <typename Real>
class RowSweep {
 public:
  __device__ RowSweep(const SwapState<Real>& state, int64_t index, double* row_product)
      : row_(state, index, row_product),
        reach_(state.reach),
        tried_(state.tried + index * (state.stride / 32)),
        group_cols_(state.group_cols),
        progress_(state.progress[index]) {}

  __device__ void Run(int steps) {
    bool known = false;  // the bounds and the next candidate
    Term candidate = NoTerm();
    for (int step = 0; step < steps && progress_.done == 0; ++step) {
      if (!known) {
        FindBounds();
        candidate = FindCandidate();
        known = true;
      }
      if (candidate.col < 0) {
        EndSweep();
        known = false;
        continue;
      }
      const Found found = FindPartner(candidate.col);
      const double change = candidate.value + found.partner.value;
      if (change < -row_.tolerance) {
        Swap(candidate.col, found.partner.col, change);
        known = false;
      } else {
        MarkTried(candidate.col);
        candidate = found.next;
      }
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

  // `col` where it is to be tried, else none.
  __device__ Term CandidateAt(int64_t col) const {
    if (!row_.Movable(col) || BitOf(tried_, col)) return NoTerm();
    const double out = row_.Out(col);
    const double reach = fabs(row_.Weight(col)) * reach_[col];
    if (!MayImprove(out, least_in_, reach, norm_, row_.tolerance)) return NoTerm();
    return {out, col};
  }

  __device__ Term FindCandidate() const {
    Term best = NoTerm();
    for (int64_t col = FirstOfThread(); col < End(); col += kBlockThreads) {
      best = CheaperOut(best, CandidateAt(col));
    }
    return BlockReduce(best, [](const Term& a, const Term& b) { return CheaperOut(a, b); });
  }

  __device__ Found FindPartner(int64_t p) const {
    const double weight = row_.Weight(p);
    Found best = {NoTerm(), NoTerm()};
    for (int64_t col = FirstOfThread(); col < End(); col += kBlockThreads) {
      if (row_.Kept(col)) {
        if (col != p) best.next = CheaperOut(best.next, CandidateAt(col));
      } else {
        const double in = WithPartner(row_.In(col), weight, row_.Weight(col), row_.Gram(p, col));
        best.partner = BetterIn(best.partner, {in, col});
      }
    }
    return BlockReduce(best, [](const Found& a, const Found& b) {
      return Found{BetterIn(a.partner, b.partner), CheaperOut(a.next, b.next)};
    });
  }

  __device__ void Swap(int64_t p, int64_t q, double change) {
    row_.Swap(p, q);
    ++progress_.swaps;
    progress_.loss_change += change;
    progress_.moved = 1;
    progress_.proven = 0;
  }

  __device__ void MarkTried(int64_t p) {
    if (threadIdx.x == 0) tried_[p >> 5] |= BitWord{1} << (p & 31);
    __syncthreads();
  }

  // Nothing is left to try in the group: once more if something has moved,
  // else on to the next group.
  __device__ void EndSweep() {
    for (int64_t word = threadIdx.x; word < row_.stride / 32; word += kBlockThreads) {
      tried_[word] = 0;
    }
    __syncthreads();
    if (progress_.moved == 0) {
      progress_.proven += group_cols_;
      progress_.first = End() < row_.cols ? End() : 0;
      progress_.done = progress_.proven >= row_.cols ? 1 : 0;
    }
    progress_.moved = 0;
  }

  SwapRow<Real> row_;
  const double* reach_;
  BitWord* tried_;
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
