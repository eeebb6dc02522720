// What the columns that enter or leave a row's vertex change, on active columns alone:
// screen_kernels.h has the rules of these kernels.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_TOGGLE_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_TOGGLE_KERNELS_H_

#include <cstdint>

namespace sparsefw::cpu {

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
ChangeSums SumChange(const VertexChange<float>& change, const float* a, const float* b);
ChangeSums SumChange(const VertexChange<double>& change, const double* a, const double* b);

// entries, shift += -step where one entered, +step where one left.
void ToggleEntries(const VertexChange<float>& change, float step, float* entries, float* shift);
void ToggleEntries(const VertexChange<double>& change, double step, double* entries, double* shift);

// out = from + sum of factor * row over the terms, in their order; returns <delta, out + from>.
// `from` may be `out`.
double AddGramTerms(const GramTerm<float>* terms, int64_t count, const VertexChange<float>& change,
                    const float* from, float* out);
double AddGramTerms(const GramTerm<double>* terms, int64_t count,
                    const VertexChange<double>& change, const double* from, double* out);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_TOGGLE_KERNELS_H_
