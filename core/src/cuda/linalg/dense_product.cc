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

}  // namespace sparsefw::cuda
