// Rows of a matrix times one vector in float64, vectorised: kernels.h has the rules of
// such kernels.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_ROW_DOTS_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_ROW_DOTS_H_

#include <cstdint>

namespace sparsefw::cpu {

inline constexpr int kDotRows = 4;

// dots[i] = <rows[i], vector>, i below kDotRows; `size` values each, of any alignment.
void DotRows(const float* const* rows, const double* vector, int64_t size, double* dots);
void DotRows(const double* const* rows, const double* vector, int64_t size, double* dots);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_ROW_DOTS_H_
