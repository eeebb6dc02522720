#include "core/src/cuda/linalg/dense_product.h"

#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::cuda {
// cuBLAS is column-major: C^T = B^T A^T there is C = A B by rows.
absl::Status DenseProduct::Multiply(const ProductArgs& args) const {
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  const float alpha32 = static_cast<float>(args.alpha);
  const float beta32 = static_cast<float>(args.beta);
  const bool wide = args.compute == CUBLAS_COMPUTE_64F;
  const void* alpha = wide ? static_cast<const void*>(&args.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&args.beta) : &beta32;
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  SPARSEFW_CUDA_RETURN_IF_ERROR(cublas_.gemm_ex(
      handle_, operation(args.b_transposed), operation(args.a_transposed),
      static_cast<int>(args.cols), static_cast<int>(args.rows), static_cast<int>(args.depth), alpha,
      args.b, args.input, static_cast<int>(args.b_stride), args.a, args.input,
      static_cast<int>(args.a_stride), beta, args.c, args.output, static_cast<int>(args.c_stride),
      args.compute, CUBLAS_GEMM_DEFAULT));
  return absl::OkStatus();
}

absl::Status DenseProduct::MultiplyBySymmetric(int64_t rows, int64_t cols, int64_t stride,
                                               const double* a, const double* symmetric,
                                               double* c) const {
  return Multiply({.rows = rows,
                   .cols = stride,
                   .depth = cols,
                   .a = a,
                   .a_stride = stride,
                   .b = symmetric,
                   .b_stride = stride,
                   .c = c,
                   .c_stride = stride,
                   .input = CUDA_R_64F,
                   .output = CUDA_R_64F,
                   .compute = CUBLAS_COMPUTE_64F});
}

// By columns it is X^T := X^T L^-T, and L^T is upper triangular.
absl::Status DenseProduct::SolveLower(int64_t size, int64_t cols, const double* lower,
                                      int64_t lower_stride, double* x, int64_t x_stride) const {
  const double one = 1;
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cublas_.dtrsm(handle_, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                    CUBLAS_DIAG_NON_UNIT, static_cast<int>(cols), static_cast<int>(size), &one,
                    lower, static_cast<int>(lower_stride), x, static_cast<int>(x_stride)));
  return absl::OkStatus();
}

}  // namespace sparsefw::cuda
