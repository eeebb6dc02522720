// Dense matrix products by cuBLAS, in row-major terms.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "core/src/cuda/runtime/cublas_library.h"

namespace sparsefw::cuda {

// C = alpha A B + beta C with A [rows, depth], B [depth, cols], C [rows, cols],
// row-major, strides in elements. A transposed operand is stored the other way
// round: a_transposed means that `a` is [depth, rows].
struct ProductArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  const void* a = nullptr;
  int64_t a_stride = 0;
  bool a_transposed = false;
  const void* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;
  void* c = nullptr;
  int64_t c_stride = 0;
  cudaDataType_t input = CUDA_R_32F;   // of A and B
  cudaDataType_t output = CUDA_R_32F;  // of C
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  double alpha = 1;
  double beta = 0;
};

// Products on the stream of a cuBLAS handle; owns neither
// (core/src/cuda/runtime/execution_context.h).
class DenseProduct {
 public:
  DenseProduct(const CublasLibrary& cublas, cublasHandle_t handle)
      : cublas_(cublas), handle_(handle) {}

  // Enqueues the product.
  absl::Status Multiply(const ProductArgs& args) const;

  // C = A G in float64, G symmetric [cols, cols]; A and C have `rows` rows. Rows of all of them are
  // `stride` elements apart, and the padding of A and G is 0; that of C becomes 0.
  absl::Status MultiplyBySymmetric(int64_t rows, int64_t cols, int64_t stride, const double* a,
                                   const double* symmetric, double* c) const;

  // X := L^-1 X in float64, L [size, size] lower triangular, X [size, cols].
  absl::Status SolveLower(int64_t size, int64_t cols, const double* lower, int64_t lower_stride,
                          double* x, int64_t x_stride) const;

 private:
  const CublasLibrary& cublas_;
  cublasHandle_t handle_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_
