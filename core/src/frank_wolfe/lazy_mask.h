// The relaxed mask M_t without a pass over it in every iteration.
//
//   M_{t+1} = (1 - eta_t) M_t + eta_t V_t
//
// With c_t = prod_{s<t} (1 - eta_s) and P_t = sum_{s<t} eta_s / c_{s+1}, an
// entry whose vertex bit v has not changed for a while is
//
//   M_t = c_t * (x + v * P_t)
//
// with a constant x: an iteration touches only the entries whose bit toggles.
// On the host and in kernels.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_LAZY_MASK_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_LAZY_MASK_H_

#include <cstdint>

#include "core/src/base/host_device.h"

namespace sparsefw {

struct LazyScale {
  double decay = 1;       // c
  double vertex_sum = 0;  // P
};

// Below this c entries are rewritten. P is at most 1/c, and x about as large: far
// from float32's range.
inline constexpr double kLeastDecay = 0x1.0p-60;

// M_t of an entry x with the vertex bit `in_vertex`.
SPARSEFW_HOST_DEVICE inline double LazyValue(double x, bool in_vertex, const LazyScale& scale) {
  const double value = scale.decay * (in_vertex ? x + scale.vertex_sum : x);
  return value < 0 ? 0.0 : value > 1 ? 1.0 : value;
}

// x of an entry whose vertex bit toggles to `in_vertex`; M_t does not change.
SPARSEFW_HOST_DEVICE inline double ToggledEntry(double x, bool in_vertex, const LazyScale& scale) {
  return x + (in_vertex ? -scale.vertex_sum : scale.vertex_sum);
}

// The change of all entries that a step asks for.
enum class Rewrite : int32_t {
  kNone,
  kForget,  // eta was 1: M is the vertex, and every x becomes 0
  kFold,    // c became too small: every x becomes M itself
};

// M_t -> M_{t+1}, eta in [0, 1]. `old`: the scale that the entries of a kFold
// still belong to.
SPARSEFW_HOST_DEVICE inline Rewrite AdvanceScale(LazyScale& scale, double eta, LazyScale& old) {
  scale.decay *= 1 - eta;
  if (scale.decay == 0) {  // P would be infinite
    scale.decay = 1;
    scale.vertex_sum = 1;
    return Rewrite::kForget;
  }
  scale.vertex_sum += eta / scale.decay;
  if (scale.decay >= kLeastDecay) return Rewrite::kNone;
  old = scale;
  scale = LazyScale{};
  return Rewrite::kFold;
}

// x after a rewrite.
SPARSEFW_HOST_DEVICE inline double RewrittenEntry(Rewrite rewrite, const LazyScale& old, double x,
                                                  bool in_vertex) {
  if (rewrite == Rewrite::kForget) return 0;
  return rewrite == Rewrite::kFold ? LazyValue(x, in_vertex, old) : x;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_LAZY_MASK_H_
