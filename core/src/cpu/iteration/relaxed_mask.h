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
// Every row has a c and a P of its own, so that rows can be at different t.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Numeric: x in Real, c and P in float64. The rounding of x at a toggle shrinks
//          with c as everything older does, so in float32 the error of M_t stays
//          near 1e-7 whatever t.
// Threads: safe for distinct rows.
template <typename Real>
class RelaxedMask {
 public:
  RelaxedMask() = default;
  // M_0 = start, with V_{-1} = start.
  RelaxedMask(const BitRows& start, int64_t rows, int64_t cols);

  // The vertex bit of the entry toggles now; `in_vertex` is the new value. M_t
  // itself does not change by that.
  void Toggle(int64_t row, int64_t col, bool in_vertex) {
    const double sum = weights_[static_cast<size_t>(row)].vertex_sum;
    Real& x = entries_(row, col);
    x = static_cast<Real>(static_cast<double>(x) + (in_vertex ? -sum : sum));
  }

  // M_t -> M_{t+1} in one row; eta in [0, 1]. `vertex` is V_t of that row,
  // toggles already made.
  void Advance(double eta, int64_t row, const uint64_t* vertex);

  // Rewrites the x of a row so that c = 1 and P = 0; M does not change.
  void Fold(int64_t row, const uint64_t* vertex);

  // M_t; `in_vertex` is the entry's bit in the vertex last toggled to.
  Real Value(int64_t row, int64_t col, bool in_vertex) const {
    const Weights& weights = weights_[static_cast<size_t>(row)];
    const double x = static_cast<double>(entries_(row, col));
    const double value = weights.decay * (in_vertex ? x + weights.vertex_sum : x);
    return static_cast<Real>(std::clamp(value, 0.0, 1.0));
  }

 private:
  struct Weights {
    double decay = 1;       // c_t
    double vertex_sum = 0;  // P_t
  };

  Matrix<Real> entries_;          // x
  std::vector<Weights> weights_;  // of each row
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_RELAXED_MASK_H_
