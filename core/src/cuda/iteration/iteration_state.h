// The scalars of the iteration, which stay on the device from step to step.
//
//   L_t = <D(M_t), E_t>   a_t = <D(V_t), E_t>   b_t = <D(V_t), U_t>
//   gap g_t = 2 (L_t - a_t)      eta_t = 2/(t+2)  or  clip(g_t / (2 (b - 2a + L)), 0, 1)
//   L_{t+1} = (1-eta)^2 L_t + 2 eta (1-eta) a_t + eta^2 b_t
//
// as in docs/numerics.md; the mask M_t is kept lazily as on the CPU
// (core/src/cpu/iteration/relaxed_mask.h), with one c and one P for all rows.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_ITERATION_STATE_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_ITERATION_STATE_H_

#include <cstdint>

#include "core/src/base/host_device.h"

namespace sparsefw::cuda {

// What the next pass over the entries of M has to do with them.
enum class Rewrite : int32_t {
  kNone,
  kForget,  // eta was 1: every x becomes 0
  kFold,    // c became too small: every x becomes M itself
};

struct IterationState {
  int64_t iteration = 0;
  double relaxed_loss = 0;
  double gap = 0;
  double step_size = 0;
  double lower_bound = 0;
  double vertex_loss = 0;          // b_{t-1}; b_t once V_t has been applied
  double vertex_inner = 0;         // a_t
  unsigned long long toggled = 0;  // over all steps
  unsigned long long pending = 0;  // of the first step, counted in advance
  double drift = 0;

  // M_t = c (x + v P) for an entry x with the vertex bit v.
  double decay = 1;       // c
  double vertex_sum = 0;  // P
  Rewrite rewrite = Rewrite::kNone;
  double old_decay = 1;  // c and P that the entries of a kFold still belong to
  double old_sum = 0;

  // Of the running request.
  int32_t line_search = 0;
  double rel_gap = 0;
  int32_t stopped = 0;  // the gap was reached: kernels do nothing any more
};

// P is at most 1/c, and x about as large: far from float32's range.
inline constexpr double kLeastDecay = 0x1.0p-60;

SPARSEFW_HOST_DEVICE inline double LazyValue(double x, bool in_vertex, double decay, double sum) {
  const double value = decay * (in_vertex ? x + sum : x);
  return value < 0 ? 0.0 : value > 1 ? 1.0 : value;
}

// x of an entry whose vertex bit toggles to `in_vertex`; M_t does not change.
SPARSEFW_HOST_DEVICE inline double ToggledEntry(double x, bool in_vertex, double sum) {
  return x + (in_vertex ? -sum : sum);
}

// M_t -> M_{t+1} for the scalars; `rewrite` says what the entries need.
SPARSEFW_HOST_DEVICE inline void AdvanceLazyMask(IterationState& state, double eta) {
  state.rewrite = Rewrite::kNone;
  state.decay *= 1 - eta;
  if (state.decay == 0) {  // M_{t+1} = V_t
    state.rewrite = Rewrite::kForget;
    state.decay = 1;
    state.vertex_sum = 1;
    return;
  }
  state.vertex_sum += eta / state.decay;
  if (state.decay < kLeastDecay) {
    state.rewrite = Rewrite::kFold;
    state.old_decay = state.decay;
    state.old_sum = state.vertex_sum;
    state.decay = 1;
    state.vertex_sum = 0;
  }
}

// x after what `rewrite` asks for.
SPARSEFW_HOST_DEVICE inline double RewrittenEntry(const IterationState& state, double x,
                                                  bool in_vertex) {
  if (state.rewrite == Rewrite::kForget) return 0;
  if (state.rewrite == Rewrite::kFold) {
    return LazyValue(x, in_vertex, state.old_decay, state.old_sum);
  }
  return x;
}

// eta_t, rounded to the type of E: the same step in every recurrence.
template <typename Real>
SPARSEFW_HOST_DEVICE double ChooseStep(const IterationState& state) {
  if (state.line_search == 0) {
    return static_cast<double>(static_cast<Real>(2.0 / static_cast<double>(state.iteration + 2)));
  }
  if (state.gap == 0) return 0;
  const double curvature = state.vertex_loss - 2 * state.vertex_inner + state.relaxed_loss;
  // Not positive by rounding only, or where G is not PSD: downhill all the way.
  if (curvature <= 0) return 1;
  const double eta = state.gap / (2 * curvature);
  return static_cast<double>(static_cast<Real>(eta < 1 ? eta : 1.0));
}

// L_{t+1} from a_t and b_t.
SPARSEFW_HOST_DEVICE inline void MoveLoss(IterationState& state, double eta) {
  const double stay = 1 - eta;
  state.relaxed_loss = stay * stay * state.relaxed_loss + 2 * eta * stay * state.vertex_inner +
                       eta * eta * state.vertex_loss;
  state.step_size = eta;
  ++state.iteration;
}

SPARSEFW_HOST_DEVICE inline bool ReachedGap(const IterationState& state) {
  return state.rel_gap > 0 && state.gap <= state.rel_gap * state.relaxed_loss;
}

// L and a are sums of the same products in different orders: what they differ by
// at a vertex that does not move is no gap.
inline constexpr double kGapNoise = 0x1.0p-42;

// With a_t of the vertex that was just chosen.
SPARSEFW_HOST_DEVICE inline void EvaluateVertex(IterationState& state, double vertex_inner) {
  state.vertex_inner = vertex_inner;
  const double gap = 2 * (state.relaxed_loss - vertex_inner);
  state.gap = gap > kGapNoise * state.relaxed_loss ? gap : 0;  // below 0 by rounding only
  const double bound = state.relaxed_loss - state.gap;
  if (bound > state.lower_bound) state.lower_bound = bound;
  if (ReachedGap(state)) state.stopped = 1;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_ITERATION_STATE_H_
