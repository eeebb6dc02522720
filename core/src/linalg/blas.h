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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"
#include "sparsefw/mutex.h"

namespace sparsefw {

// Switches the library's own threads off; once is enough. The functions below do it
// themselves.
void UseOneBlasThread();

// What the library calls the kernels that it chose for this processor, or that
// OPENBLAS_CORETYPE names: "SkylakeX", "Haswell", ...; "unknown" of another library than OpenBLAS.
std::string BlasKernels();

// C = A B, or C += A B. All row-major; strides in elements.
//   a [rows, depth]   b [depth, cols]   c [rows, cols], aliases neither
template <typename T>
struct GemmArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  const T* a = nullptr;
  int64_t a_stride = 0;
  const T* b = nullptr;
  int64_t b_stride = 0;
  T* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;  // C += A B
};

// Threads: as ParallelFor, in blocks of 20 ms at most; safe to call concurrently.
// Cost:    2 * rows * cols * depth flops
void GemmF32(const GemmArgs<float>& args);
void GemmF64(const GemmArgs<double>& args);

// The same in `context`.
// Errors: Cancelled; C is then partly written
template <typename T>
absl::Status Gemm(const GemmArgs<T>& args, const ParallelContext& context);

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
  // Threads: as GemmF32.
  // Cost:    rows * cols^2 flops.
  void Add(int64_t rows, const float* a, int64_t a_stride, double* sum);

 private:
  Matrix<float> TakeTile();
  void ReturnTile(Matrix<float> tile);

  int64_t cols_;
  Mutex mutex_;
  std::vector<Matrix<float>> tiles_ ABSL_GUARDED_BY(mutex_);  // those not in use
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
