// How far a row of the iterate has moved since an epoch began: the scalars of
// the screening bound, on the host and in kernels.
//
//   |s_t,j - s_0,j| <= |w_j| sqrt(G_jj) n_t,     n_t = ||D_t - D_0||_G,  a row each
//
// with s = w.E the scores and D_0, E_0 = D_0 G those at which the epoch began
// (docs/numerics.md proves it). Since D_{t+1} = (1 - eta) D_t + eta D(V_t),
//
//   n_{t+1}^2 = (1-eta)^2 n_t^2 + 2 eta (1-eta) (a - f - c + L_0) + eta^2 (b - 2c + L_0)
//   f_{t+1}   = (1-eta) f_t + eta c_t
//   a_{t+1}   = (1-eta) a_t + eta b_t + <D(V_{t+1}) - D(V_t), E_{t+1}>
//
//   a = <D(V_t), E_t>   b = <D(V_t), U_t>   c = <D(V_t), E_0>   f = <D_t, E_0>
//
// all of which change only where the vertex does.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_SCREENING_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_SCREENING_H_

#include <type_traits>

#include "core/src/base/host_device.h"

namespace sparsefw {

struct RowMovement {
  double start_loss = 0;    // L_0 = <D_0, E_0>
  double vertex_inner = 0;  // a
  double vertex_loss = 0;   // b
  double vertex_start = 0;  // c
  double inner_start = 0;   // f
  double moved = 0;         // n^2
  double decay = 1;         // prod (1 - eta) since the epoch began

  // V_{t-1} has become V_t: what is added to <D(V), E_t> and <D(V), E_0>.
  SPARSEFW_HOST_DEVICE void ToggleVertex(double inner_change, double start_change) {
    vertex_inner += inner_change;
    vertex_start += start_change;
  }

  // D_t -> D_{t+1}, b being that of V_t. V stays: a is then <D(V_t), E_{t+1}>.
  SPARSEFW_HOST_DEVICE void TakeStep(double eta) {
    const double stay = 1 - eta;
    const double along = vertex_inner - inner_start - vertex_start + start_loss;
    const double square = stay * stay * moved + 2 * eta * stay * along + eta * eta * VertexAway();
    moved = square > 0 ? square : 0;  // below 0 by rounding only
    inner_start = stay * inner_start + eta * vertex_start;
    vertex_inner = stay * vertex_inner + eta * vertex_loss;
    decay *= stay;
  }

  // ||D(V_t) - D_0||_G^2
  SPARSEFW_HOST_DEVICE double VertexAway() const {
    const double square = vertex_loss - 2 * vertex_start + start_loss;
    return square > 0 ? square : 0;
  }
};

// By how much the terms of n^2 may be off beside L_0, and the radius must exceed
// what they say: E and U carry the rounding of their type.
template <typename Real>
SPARSEFW_HOST_DEVICE constexpr double MovementNoise() {
  return std::is_same_v<Real, float> ? 0x1.0p-20 : 0x1.0p-44;
}

// The bound is on exact scores; those computed are compared with this much more room.
inline constexpr double kRadiusMargin = 1 + 0x1.0p-10;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_SCREENING_H_
