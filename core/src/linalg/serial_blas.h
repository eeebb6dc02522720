// BLAS calls on the calling thread alone, for loops over rows that are parallel
// themselves. All row-major; strides in elements.
#ifndef SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_
#define SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_

#include <cstdint>

namespace sparsefw::serial {

// An upper triangular matrix R [size, size].
template <typename Real>
struct Upper {
  int64_t size = 0;
  const Real* values = nullptr;
  int64_t stride = 0;
};
// B [R.size, cols] := R^-T B
template <typename Real>
void SolveTransposed(const Upper<Real>& upper, int64_t cols, Real* b, int64_t b_stride);
// x := R^-1 x
template <typename Real>
void SolveVector(const Upper<Real>& upper, Real* x);

// y := y + alpha A x, A [rows, cols]; with `transpose` A^T x.
template <typename Real>
void AddProduct(bool transpose, int64_t rows, int64_t cols, Real alpha, const Real* a,
                int64_t a_stride, const Real* x, Real* y);

// C [cols, cols] := C + A^T A, the lower triangle; A [rows, cols], both without gaps.
template <typename Real>
void AddLowerSquare(int64_t rows, int64_t cols, const Real* a, Real* c);

}  // namespace sparsefw::serial

#endif  // SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_
