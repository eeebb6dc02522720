// The vectorised inner loops of screened iterations, compiled for several
// instruction sets and chosen at run time: ../linalg/kernels.h has the rules.
//
// Rows of active columns are 64-byte aligned and padded with zeros to whole words
// of 64; loops over them end after `groups` times kLaneGroup columns.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_

#include <cstdint>

#include "core/src/cpu/linalg/kernels.h"

namespace sparsefw::cpu {

// Which scores may reach the threshold while the row moves by `radius` at most.
template <typename Real>
struct ScreenTest {
  const Real* norms = nullptr;  // sqrt(G_jj)
  Real radius = 0;
  Real low = 0;  // the window that the threshold stays in
  Real high = 0;
};

// A row of G on the active columns and what it is multiplied by.
template <typename Real>
struct GramTerm {
  const Real* row;
  Real factor;
};

// A vertex of a row that changes: those in `after` and not in `before` have entered it, and
// left D; delta = W on those that left it, -W on those that entered.
template <typename Real>
struct VertexChange {
  int64_t groups = 0;
  const Real* weights = nullptr;
  const uint64_t* before = nullptr;
  const uint64_t* after = nullptr;
};

// <delta, a> and <delta, b>, in float64; coordinates of weight 0 left out of `changed`.
struct ChangeSums {
  double with_a = 0;
  double with_b = 0;
  int64_t changed = 0;
};

template <typename Real>
struct ScreenKernels {
  // With s = W.E and r = |W|.norms.radius, of the coordinates that are not fixed:
  //   above = those with s - r > high;  active = those with neither that nor s + r < low
  //   nor s + r <= 0, for only positive scores are ever selected
  void (*screen_row)(const RowOperands<Real>& row, const ScreenTest<Real>& test, uint64_t* active,
                     uint64_t* above);

  // The least score W.E over the coordinates in `vertex`; the largest value of the type if none is.
  Real (*least_score)(int64_t words, const Real* weights, const Real* product,
                      const uint64_t* vertex);

  // out = keep * out + move * other
  void (*blend_row)(int64_t words, Real keep, const Real* other, Real move, Real* out);

  // out[i] = from[offsets[i]], i below `count`; fetches next[offsets[i]], if it is not null, into
  // the cache meanwhile.
  void (*gather_row)(const Real* from, const Real* next, const int32_t* offsets, int64_t count,
                     Real* out);

  ChangeSums (*sum_change)(const VertexChange<Real>& change, const Real* a, const Real* b);

  // entries, shift += -step where one entered, +step where one left.
  void (*toggle_entries)(const VertexChange<Real>& change, Real step, Real* entries, Real* shift);

  // out = from + sum of factor * row over the terms, in their order; returns <delta, out + from>.
  // `from` may be `out`.
  double (*add_gram_terms)(const GramTerm<Real>* terms, int64_t count,
                           const VertexChange<Real>& change, const Real* from, Real* out);
};
template <typename Real>
const ScreenKernels<Real>& KernelsOfScreening();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREEN_KERNELS_H_
