// Dense products for every engine, over any CBLAS.
//
// The BLAS library's own threads are switched off once, before the first
// product: ours are oneTBB's (parallel_context.h), so that several jobs at once do not
// oversubscribe the cores. Work is cut into blocks whose boundaries depend on
// the shape only, so results are the same for any number of threads.
#ifndef SPARSEFW_CORE_SRC_LINALG_BLAS_H_
#define SPARSEFW_CORE_SRC_LINALG_BLAS_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/parallel/scratch_pool.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Switches the library's own threads off; once is enough. The functions below do it
// themselves.
void UseOneBlasThread();

// What the library calls the kernels that it chose for this processor, or that
// OPENBLAS_CORETYPE names: "SkylakeX", "Haswell", ...; "unknown" of another library than OpenBLAS.
std::string BlasKernels();

struct GemmShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  bool accumulate = false;  // C += A B
};

// A matrix, from its first element on, or a part of one; row-major, stride in elements.
template <typename T>
struct Operand {
  using Whole = std::conditional_t<std::is_const_v<T>, const Matrix<std::remove_const_t<T>>&,
                                   Matrix<std::remove_const_t<T>>&>;
  // Not explicit, so that a product names its matrices alone.
  Operand(Whole matrix) : data(matrix.data()), stride(matrix.cols()) {}
  Operand(T* first, int64_t elements) : data(first), stride(elements) {}

  T* data;
  int64_t stride;
};

// C = A B, or C += A B.
//   a [rows, depth]   b [depth, cols]   c [rows, cols], aliases neither
//
// Threads: as ParallelFor, in blocks of 20 ms at most; safe to call concurrently.
// Cost:    2 * rows * cols * depth flops
template <typename T>
void Gemm(const GemmShape& shape, Operand<const T> a, Operand<const T> b, Operand<T> c);

// The same in `context`.
// Errors: Cancelled; C is then partly written
template <typename T>
absl::Status Gemm(const GemmShape& shape, Operand<const T> a, Operand<const T> b, Operand<T> c,
                  const ParallelContext& context);

// sum += A^T A, the upper triangle only (the strictly lower one is not
// touched): products of one call in fp32, added to `sum` in float64.
//
// Memory: up to 1 MiB a thread, all of it taken by the constructor, so that
//         Add cannot fail half-way.
// Not thread-safe.
class SyrkF32 {
 public:
  // `threads`: of the arena that Add will be called in.
  SyrkF32(int64_t cols, int threads);

  // Shapes:  a [rows, cols], row-major; sum [cols, cols], row-major, stride cols
  // Numeric: the fp32 error grows with rows: a few thousand at most.
  // Threads: as Gemm.
  // Cost:    rows * cols^2 flops.
  void Add(int64_t rows, const float* a, int64_t a_stride, double* sum);

 private:
  int64_t cols_;
  ScratchPool<Matrix<float>> tiles_;
};

// Calls on the calling thread alone, for loops over rows that are parallel themselves. All
// row-major; strides in elements.
namespace serial {

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

}  // namespace serial
}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_BLAS_H_
