#include "core/src/linalg/serial_blas.h"

#include <cblas.h>

#include "core/src/linalg/blas.h"

namespace sparsefw::serial {
namespace {

// CBLAS counts in int; every dimension of a layer fits.
int Int(int64_t value) { return static_cast<int>(value); }
CBLAS_TRANSPOSE Of(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

}  // namespace

template <>
void SolveTransposed(const Upper<float>& r, int64_t cols, float* b, int64_t b_stride) {
  UseOneBlasThread();
  if (r.size == 0 || cols == 0) return;
  cblas_strsm(CblasRowMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit, Int(r.size),
              Int(cols), 1.0F, r.values, Int(r.stride), b, Int(b_stride));
}
template <>
void SolveTransposed(const Upper<double>& r, int64_t cols, double* b, int64_t b_stride) {
  UseOneBlasThread();
  if (r.size == 0 || cols == 0) return;
  cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, CblasTrans, CblasNonUnit, Int(r.size),
              Int(cols), 1.0, r.values, Int(r.stride), b, Int(b_stride));
}

template <>
void SolveVector(const Upper<float>& r, float* x) {
  UseOneBlasThread();
  if (r.size == 0) return;
  cblas_strsv(CblasRowMajor, CblasUpper, CblasNoTrans, CblasNonUnit, Int(r.size), r.values,
              Int(r.stride), x, 1);
}

template <>
void SolveVector(const Upper<double>& r, double* x) {
  UseOneBlasThread();
  if (r.size == 0) return;
  cblas_dtrsv(CblasRowMajor, CblasUpper, CblasNoTrans, CblasNonUnit, Int(r.size), r.values,
              Int(r.stride), x, 1);
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
void AddLowerSquare(int64_t rows, int64_t cols, const float* a, float* c) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, Int(cols), Int(rows), 1.0F, a, Int(cols), 1.0F,
              c, Int(cols));
}
template <>
void AddLowerSquare(int64_t rows, int64_t cols, const double* a, double* c) {
  UseOneBlasThread();
  if (rows == 0 || cols == 0) return;
  cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, Int(cols), Int(rows), 1.0, a, Int(cols), 1.0,
              c, Int(cols));
}

}  // namespace sparsefw::serial
