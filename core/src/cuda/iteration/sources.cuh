// The inputs of a selection: scores or relaxed entries. Entries are those of a padded matrix,
// numbered row-major; the padding is never selected. A source is passed to kernels by value and has
//
//   kKeyBits                   the bits of its keys
//   Kept                       what is known of an entry once it has been read
//   Stopped()                  nothing is to be done
//   Move(first, step, end, kept, parts)   once for every entry, before the others:
//                              those of kAhead entries, `step` apart, before `end`
//   At(i)                      the same entry again
//   Key(kept)                  0: not to be selected (the fixed set, the padding)
//   Part(i, kept, selected)    what is summed up over all entries
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_SOURCES_CUH_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_SOURCES_CUH_

#include <limits>

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"

namespace sparsefw::cuda {

// Entries that a thread reads before it writes any: a store would hold back the loads that follow.
inline constexpr int kAhead = 4;

// The numbers of the step that a thread needs. Read once: for all the compiler knows
// every store of E changes the state, which it would then load again.
template <typename Real>
struct StepToTake {
  Real eta;
  bool rewrites;  // the entries of M
};

template <typename Real>
__device__ StepToTake<Real> ReadStep(const IterateView<Real>& it) {
  return {static_cast<Real>(it.state->recurrence.step_size), it.state->rewrite != Rewrite::kNone};
}

// E_{t+1} = E_t + eta (U_t - E_t) and what M needs, at one entry of which E and
// U have been read. Returns the former.
template <typename Real>
__device__ Real StoreMoved(const IterateView<Real>& it, const StepToTake<Real>& step, int64_t i,
                           Real product, Real vertex_product) {
  const Real moved = product + step.eta * (vertex_product - product);
  it.product[i] = moved;
  if (step.rewrites) {
    it.entries[i] = static_cast<Real>(
        RewrittenEntry(*it.state, static_cast<double>(it.entries[i]), BitOf(it.previous, i)));
  }
  return moved;
}

// Scores W.E for the next vertex; the parts add up to a = <D(V), E>.
template <typename Real>
struct ScoreSource {
  static constexpr int kKeyBits = kScoreKeyBits<Real>;
  static constexpr Real kFixed = -std::numeric_limits<Real>::infinity();
  using Kept = Real;  // the score, or kFixed

  IterateView<Real> it;
  bool moves = false;

  __device__ bool Stopped() const { return it.state->stopped != 0; }
  __device__ Kept Score(int64_t i, Real product) const {
    return BitOf(it.fixed, i) ? kFixed : it.weights[i] * product;
  }
  // parts: those of entries that are not selected.
  __device__ void Move(int64_t first, int64_t step, int64_t end, Kept (&kept)[kAhead],
                       double (&parts)[kAhead]) const {
    Real product[kAhead] = {};
    Real vertex_product[kAhead] = {};
    Real weight[kAhead] = {};
    BitWord fixed[kAhead] = {};
    const StepToTake<Real> step_to_take = ReadStep(it);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      if (i >= end) continue;
      product[k] = it.product[i];
      if (moves) vertex_product[k] = it.vertex_product[i];
      weight[k] = it.weights[i];
      fixed[k] = it.fixed[i / 32];
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      kept[k] = kFixed;
      parts[k] = 0;
      if (i >= end) continue;
      if (moves) product[k] = StoreMoved(it, step_to_take, i, product[k], vertex_product[k]);
      if ((fixed[k] >> (i % 32) & 1U) != 0) continue;
      kept[k] = weight[k] * product[k];
      parts[k] = static_cast<double>(weight[k]) * static_cast<double>(product[k]);
    }
  }
  __device__ Kept At(int64_t i) const { return Score(i, it.product[i]); }
  __device__ static uint64_t Key(Kept score) { return ScoreKey(score); }
  __device__ double Part(int64_t i, Kept score, bool selected) const {
    if (selected || score == kFixed) return 0;
    return static_cast<double>(it.weights[i]) * static_cast<double>(it.product[i]);
  }
};

// Entries of M_t for rounding; the parts add up to ||M_t - round(M_t)||_1.
template <typename Real>
struct RoundSource {
  static constexpr int kKeyBits = kRoundingKeyBits;
  using Kept = uint64_t;  // the key

  IterateView<Real> it;
  const float* saliency = nullptr;

  __device__ bool Stopped() const { return false; }
  __device__ bool Free(int64_t i) const { return i % it.stride < it.cols && !BitOf(it.fixed, i); }
  __device__ double Entry(int64_t i) const {
    const double value =
        LazyValue(static_cast<double>(it.entries[i]), BitOf(it.previous, i), it.state->scale);
    return static_cast<double>(static_cast<Real>(value));
  }
  __device__ void Move(int64_t first, int64_t step, int64_t end, Kept (&kept)[kAhead],
                       double (&parts)[kAhead]) const {
    for (int k = 0; k < kAhead; ++k) {
      const int64_t i = first + k * step;
      kept[k] = i < end ? At(i) : 0;
      parts[k] = i < end ? Part(i, kept[k], false) : 0;
    }
  }
  __device__ Kept At(int64_t i) const { return Free(i) ? RoundingKey(Entry(i), saliency[i]) : 0; }
  __device__ static uint64_t Key(Kept key) { return key; }
  __device__ double Part(int64_t i, Kept key, bool selected) const {
    if (key == 0) return 0;
    const double entry = Entry(i);
    return selected ? 1 - entry : entry;
  }
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_SOURCES_CUH_
