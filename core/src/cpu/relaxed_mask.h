// The relaxed mask M_t, kept lazily.
//
//   M_{t+1} = (1 - eta_t) M_t + eta_t V_t
//
// With c_t = prod_{s<t} (1 - eta_s) and P_t = sum_{s<t} eta_s / c_{s+1}, an
// entry whose vertex bit v has not changed for a while is
//
//   M_t = c_t * (x + v * P_t)
//
// with a constant x: an iteration touches only the entries whose bit toggles.
#ifndef SPARSEFW_CORE_SRC_CPU_RELAXED_MASK_H_
#define SPARSEFW_CORE_SRC_CPU_RELAXED_MASK_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "core/src/cpu/bit_rows.h"
#include "core/src/cpu/workers.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Numeric: x in Real, c and P in float64. The rounding of x at a toggle shrinks
// with c as everything older does, so in float32 the error of M_t stays near
// 1e-7 whatever t.
template <typename Real>
class RelaxedMask {
 public:
  RelaxedMask() = default;
  // M_0 = start, with V_{-1} = start.
  RelaxedMask(const BitRows& start, int64_t rows, int64_t cols);

  // The vertex bit of the entry toggles now; `in_vertex` is the new value. M_t
  // itself does not change by that. Distinct rows concurrently.
  void Toggle(int64_t row, int64_t col, bool in_vertex) {
    const double shift = in_vertex ? -vertex_sum_ : vertex_sum_;
    Real& x = entries_(row, col);
    x = static_cast<Real>(static_cast<double>(x) + shift);
  }

  // M_t -> M_{t+1}; eta in [0, 1]. `vertex` is V_t, toggles already made.
  absl::Status Advance(double eta, const BitRows& vertex, Workers& workers);

  // Rewrites every x so that c = 1 and P = 0; M does not change.
  absl::Status Fold(const BitRows& vertex, Workers& workers);

  // M_t; `in_vertex` is the entry's bit in the vertex last toggled to.
  Real Value(int64_t row, int64_t col, bool in_vertex) const {
    const double x = static_cast<double>(entries_(row, col));
    const double value = decay_ * (in_vertex ? x + vertex_sum_ : x);
    return static_cast<Real>(std::clamp(value, 0.0, 1.0));
  }

 private:
  Matrix<Real> entries_;   // x
  double decay_ = 1;       // c_t
  double vertex_sum_ = 0;  // P_t
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_RELAXED_MASK_H_
