// BLAS calls on the calling thread alone, for loops over rows that are parallel
// themselves. All row-major; strides in elements.
#ifndef SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_
#define SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_

#include <cstdint>

namespace sparsefw::serial {

// C [rows, cols] := beta C + alpha A B. With `transpose` A is stored [depth, rows].
template <typename Real>
struct Product {
  bool transpose = false;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  Real alpha = 1;
  const Real* a = nullptr;
  int64_t a_stride = 0;
  const Real* b = nullptr;
  int64_t b_stride = 0;
  Real beta = 1;
  Real* c = nullptr;
  int64_t c_stride = 0;
};
template <typename Real>
void Multiply(const Product<Real>& product);

// The lower triangle of C [size, size] := beta C + alpha A A^T, A [size, depth]; with
// `transpose` alpha A^T A, A [depth, size].
template <typename Real>
struct Square {
  bool transpose = false;
  int64_t size = 0;
  int64_t depth = 0;
  Real alpha = 1;
  const Real* a = nullptr;
  int64_t a_stride = 0;
  Real beta = 1;
  Real* c = nullptr;
  int64_t c_stride = 0;
};
template <typename Real>
void AddSquare(const Square<Real>& square);

// A lower triangular matrix L [size, size].
template <typename Real>
struct Lower {
  int64_t size = 0;
  const Real* values = nullptr;
  int64_t stride = 0;
  bool transposed = false;  // values hold L^T
};
// B [L.size, cols] := L^-1 B
template <typename Real>
void SolveLeft(const Lower<Real>& lower, int64_t cols, Real* b, int64_t b_stride);
// B [rows, L.size] := B L^-1, with `transpose` B L^-T
template <typename Real>
void SolveRight(const Lower<Real>& lower, bool transpose, int64_t rows, Real* b, int64_t b_stride);
// x := L^-1 x, with `transpose` L^-T x
template <typename Real>
void SolveVector(const Lower<Real>& lower, bool transpose, Real* x);

// y := y + alpha A x, A [rows, cols]; with `transpose` A^T x.
template <typename Real>
void AddProduct(bool transpose, int64_t rows, int64_t cols, Real alpha, const Real* a,
                int64_t a_stride, const Real* x, Real* y);

// y := y + alpha x
template <typename Real>
void AddScaled(int64_t size, Real alpha, const Real* x, Real* y);

// L with L L^T = A in place of the lower triangle of A [size, size].
//
// A pivot that is not above `floor` times its `diagonal` is replaced by that diagonal (by
// 1 where it is 0), as if as much had been added to A there: the column depends on those
// before it, and a solution gives it next to nothing.
// Cost: size^3 / 3 flops
template <typename Real>
void Factorize(Real* a, int64_t size, int64_t stride, const Real* diagonal, Real floor);

}  // namespace sparsefw::serial

#endif  // SPARSEFW_CORE_SRC_LINALG_SERIAL_BLAS_H_
