#include "core/src/linalg/serial_blas.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "core/src/linalg/blas.h"

namespace sparsefw::serial {
namespace {

// CBLAS counts in int; every dimension of a layer fits.
int Int(int64_t value) { return static_cast<int>(value); }
CBLAS_TRANSPOSE Of(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

template <typename Real>
CBLAS_UPLO Triangle(const Lower<Real>& l) {
  return l.transposed ? CblasUpper : CblasLower;
}

// Below this, loops over rows are as fast as products.
constexpr int64_t kSmallFactor = 32;

template <typename Real>
void FactorizeSmall(Real* a, int64_t size, int64_t stride, const Real* diagonal, Real floor) {
  for (int64_t j = 0; j < size; ++j) {
    const Real* pivot_row = a + j * stride;
    for (int64_t i = j; i < size; ++i) {
      Real* row = a + i * stride;
      Real sum = row[j];
      for (int64_t k = 0; k < j; ++k) sum -= row[k] * pivot_row[k];
      if (i > j) {
        row[j] = sum / pivot_row[j];
        continue;
      }
      if (!(sum > floor * diagonal[j])) sum = diagonal[j] > 0 ? diagonal[j] : 1;
      row[j] = std::sqrt(sum);
    }
  }
}

}  // namespace

template <>
void Multiply(const Product<float>& p) {
  UseOneBlasThread();
  if (p.rows == 0 || p.cols == 0) return;
  cblas_sgemm(CblasRowMajor, Of(p.transpose), CblasNoTrans, Int(p.rows), Int(p.cols), Int(p.depth),
              p.alpha, p.a, Int(p.a_stride), p.b, Int(p.b_stride), p.beta, p.c, Int(p.c_stride));
}
template <>
void Multiply(const Product<double>& p) {
  UseOneBlasThread();
  if (p.rows == 0 || p.cols == 0) return;
  cblas_dgemm(CblasRowMajor, Of(p.transpose), CblasNoTrans, Int(p.rows), Int(p.cols), Int(p.depth),
              p.alpha, p.a, Int(p.a_stride), p.b, Int(p.b_stride), p.beta, p.c, Int(p.c_stride));
}

template <>
void AddSquare(const Square<float>& s) {
  UseOneBlasThread();
  if (s.size == 0) return;
  cblas_ssyrk(CblasRowMajor, CblasLower, Of(s.transpose), Int(s.size), Int(s.depth), s.alpha, s.a,
              Int(s.a_stride), s.beta, s.c, Int(s.c_stride));
}
template <>
void AddSquare(const Square<double>& s) {
  UseOneBlasThread();
  if (s.size == 0) return;
  cblas_dsyrk(CblasRowMajor, CblasLower, Of(s.transpose), Int(s.size), Int(s.depth), s.alpha, s.a,
              Int(s.a_stride), s.beta, s.c, Int(s.c_stride));
}

template <>
void SolveLeft(const Lower<float>& l, int64_t cols, float* b, int64_t b_stride) {
  UseOneBlasThread();
  if (l.size == 0 || cols == 0) return;
  cblas_strsm(CblasRowMajor, CblasLeft, Triangle(l), Of(l.transposed), CblasNonUnit, Int(l.size),
              Int(cols), 1.0F, l.values, Int(l.stride), b, Int(b_stride));
}
template <>
void SolveLeft(const Lower<double>& l, int64_t cols, double* b, int64_t b_stride) {
  UseOneBlasThread();
  if (l.size == 0 || cols == 0) return;
  cblas_dtrsm(CblasRowMajor, CblasLeft, Triangle(l), Of(l.transposed), CblasNonUnit, Int(l.size),
              Int(cols), 1.0, l.values, Int(l.stride), b, Int(b_stride));
}

template <>
void SolveRight(const Lower<float>& l, bool transpose, int64_t rows, float* b, int64_t b_stride) {
  UseOneBlasThread();
  if (l.size == 0 || rows == 0) return;
  cblas_strsm(CblasRowMajor, CblasRight, Triangle(l), Of(transpose != l.transposed), CblasNonUnit,
              Int(rows), Int(l.size), 1.0F, l.values, Int(l.stride), b, Int(b_stride));
}
template <>
void SolveRight(const Lower<double>& l, bool transpose, int64_t rows, double* b, int64_t b_stride) {
  UseOneBlasThread();
  if (l.size == 0 || rows == 0) return;
  cblas_dtrsm(CblasRowMajor, CblasRight, Triangle(l), Of(transpose != l.transposed), CblasNonUnit,
              Int(rows), Int(l.size), 1.0, l.values, Int(l.stride), b, Int(b_stride));
}

template <>
void SolveVector(const Lower<float>& l, bool transpose, float* x) {
  UseOneBlasThread();
  if (l.size == 0) return;
  cblas_strsv(CblasRowMajor, Triangle(l), Of(transpose != l.transposed), CblasNonUnit, Int(l.size),
              l.values, Int(l.stride), x, 1);
}
template <>
void SolveVector(const Lower<double>& l, bool transpose, double* x) {
  UseOneBlasThread();
  if (l.size == 0) return;
  cblas_dtrsv(CblasRowMajor, Triangle(l), Of(transpose != l.transposed), CblasNonUnit, Int(l.size),
              l.values, Int(l.stride), x, 1);
}

template <>
void AddProduct(bool transpose, int64_t rows, int64_t cols, float alpha, const float* a,
                int64_t a_stride, const float* x, float* y) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  cblas_sgemv(CblasRowMajor, Of(transpose), Int(rows), Int(cols), alpha, a, Int(a_stride), x, 1,
              1.0F, y, 1);
}
template <>
void AddProduct(bool transpose, int64_t rows, int64_t cols, double alpha, const double* a,
                int64_t a_stride, const double* x, double* y) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  cblas_dgemv(CblasRowMajor, Of(transpose), Int(rows), Int(cols), alpha, a, Int(a_stride), x, 1,
              1.0, y, 1);
}

template <>
void AddScaled(int64_t size, float alpha, const float* x, float* y) {
  UseOneBlasThread();
  cblas_saxpy(Int(size), alpha, x, 1, y, 1);
}
template <>
void AddScaled(int64_t size, double alpha, const double* x, double* y) {
  UseOneBlasThread();
  cblas_daxpy(Int(size), alpha, x, 1, y, 1);
}

// By halves, so that nearly all of it is products.
template <typename Real>
void Factorize(Real* a, int64_t size, int64_t stride, const Real* diagonal, Real floor) {
  if (size <= kSmallFactor) return FactorizeSmall(a, size, stride, diagonal, floor);
  const int64_t half = (size / 2 + 15) / 16 * 16;
  const int64_t rest = size - half;
  Real* below = a + half * stride;
  Factorize(a, half, stride, diagonal, floor);
  SolveRight<Real>({half, a, stride}, /*transpose=*/true, rest, below, stride);
  AddSquare<Real>({.size = rest,
                   .depth = half,
                   .alpha = -1,
                   .a = below,
                   .a_stride = stride,
                   .c = below + half,
                   .c_stride = stride});
  Factorize(below + half, rest, stride, diagonal + half, floor);
}
template void Factorize(float*, int64_t, int64_t, const float*, float);
template void Factorize(double*, int64_t, int64_t, const double*, double);

}  // namespace sparsefw::serial
