// The scalars of Frank-Wolfe, on the host and in kernels.
//
//   L_t = <D(M_t), E_t>   a_t = <D(V_t), E_t>   b_t = <D(V_t), U_t>
//   gap g_t = 2 (L_t - a_t)      eta_t = 2/(t+2)  or  clip(g_t / (2 (b - 2a + L)), 0, 1)
//   L_{t+1} = (1-eta)^2 L_t + 2 eta (1-eta) a_t + eta^2 b_t
//
// with E_t = D(M_t) G and U_t = D(V_t) G; docs/numerics.md derives them. The
// engines sum a and b; everything that follows from them is here.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_RECURRENCE_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_RECURRENCE_H_

#include <cstdint>
#include <limits>

#include "core/src/base/host_device.h"

namespace sparsefw {

inline constexpr double kNoBound = -std::numeric_limits<double>::infinity();

struct Recurrence {
  int64_t iteration = 0;          // t: steps taken
  double relaxed_loss = 0;        // L_t
  double gap = 0;                 // g_t >= 0
  double step_size = 0;           // of the last step
  double lower_bound = kNoBound;  // max L_s - g_s
  double vertex_loss = 0;         // b_{t-1}; b_t once V_t has been applied to U
  double vertex_inner = 0;        // a_t
};

// E, U, L and b are computed anew by dense products once in so many iterations,
// so that rounding does not pile up. Drift after 500 iterations was measured as
// 2e-7 relative; two dense products in 500 iterations cost a few percent. When
// refreshes happen depends on the iterates alone: on the iteration, and on the CPU on how many
// iterations looked at all columns. So the same input gives the same bits however Step is cut into
// batches.
inline constexpr int64_t kRefreshPeriod = 500;

// Whether step `iteration` forms U_t and b_t as a dense product.
SPARSEFW_HOST_DEVICE inline bool RefreshesVertexProduct(int64_t iteration) {
  return iteration > 0 && iteration % kRefreshPeriod == 0;
}
// Whether E and L are computed anew at the end of step `iteration`.
SPARSEFW_HOST_DEVICE inline bool RefreshesProduct(int64_t iteration) {
  return (iteration + 1) % kRefreshPeriod == 0;
}
// Steps from `iteration` on before the next one with RefreshesProduct.
SPARSEFW_HOST_DEVICE inline int64_t StepsBeforeRefresh(int64_t iteration) {
  return kRefreshPeriod - 1 - iteration % kRefreshPeriod;
}

// Steps are rounded to the type of E, so that E, M and L all take the same one.
template <typename Real>
SPARSEFW_HOST_DEVICE double OpenLoopStep(int64_t iteration) {
  return static_cast<double>(static_cast<Real>(2.0 / static_cast<double>(iteration + 2)));
}

// eta_t, with b_t of the vertex applied.
template <typename Real>
SPARSEFW_HOST_DEVICE double ChooseStep(const Recurrence& at, bool line_search) {
  if (!line_search) return OpenLoopStep<Real>(at.iteration);
  if (at.gap == 0) return 0;
  const double curvature = at.vertex_loss - 2 * at.vertex_inner + at.relaxed_loss;
  // Rounding, or a G that is not PSD, made it 0 or less: the loss falls all the way.
  if (curvature <= 0) return 1;
  const double eta = at.gap / (2 * curvature);
  return static_cast<double>(static_cast<Real>(eta < 1 ? eta : 1.0));
}

// L_t -> L_{t+1}.
SPARSEFW_HOST_DEVICE inline void TakeStep(Recurrence& at, double eta) {
  const double stay = 1 - eta;
  at.relaxed_loss =
      stay * stay * at.relaxed_loss + 2 * eta * stay * at.vertex_inner + eta * eta * at.vertex_loss;
  at.step_size = eta;
  ++at.iteration;
}

// L and a are sums of the same products in different orders. A difference below
// this part of L is rounding: the gap is 0, as it is exactly where it is summed
// directly (the reference engine). A step would otherwise be chosen from noise.
inline constexpr double kGapNoise = 0x1.0p-42;

// The gap and the bound, with a_t of the vertex that was just chosen. The bound
// takes the difference as it is: it must not be too high.
SPARSEFW_HOST_DEVICE inline void EvaluateVertex(Recurrence& at, double vertex_inner) {
  at.vertex_inner = vertex_inner;
  const double difference = 2 * (at.relaxed_loss - vertex_inner);
  const double gap = difference > 0 ? difference : 0;  // below 0 by rounding only
  const double size = at.relaxed_loss < 0 ? -at.relaxed_loss : at.relaxed_loss;
  at.gap = gap > kGapNoise * size ? gap : 0;
  const double bound = at.relaxed_loss - gap;
  if (bound > at.lower_bound) at.lower_bound = bound;
}

// rel_gap 0: never.
SPARSEFW_HOST_DEVICE inline bool ReachedGap(const Recurrence& at, double rel_gap) {
  return rel_gap > 0 && at.gap <= rel_gap * at.relaxed_loss;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_RECURRENCE_H_
