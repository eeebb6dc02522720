#include "core/src/cuda/linalg/dense_product.h"

#include <type_traits>

#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::cuda {
namespace {

template <typename Real>
constexpr cudaDataType_t TypeOf() {
  return std::is_same_v<Real, double> ? CUDA_R_64F : CUDA_R_32F;
}

template <typename Real>
cublasComputeType_t ComputeType(ProductPrecision precision) {
  if (std::is_same_v<Real, double>) return CUBLAS_COMPUTE_64F;
  switch (precision) {
    case ProductPrecision::kTf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case ProductPrecision::kBf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    case ProductPrecision::kFloat32:
      break;
  }
  return CUBLAS_COMPUTE_32F;
}

}  // namespace

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

template <typename Real>
absl::Status DenseProduct::MultiplyBySymmetric(int64_t rows, int64_t cols, int64_t stride,
                                               const Real* a, const Real* symmetric, Real* c,
                                               ProductPrecision precision) const {
  // Tensor cores read TF32 operands along the depth only. Stored by rows G has to
  // be transposed on the way for that; G^T, which is the same matrix, has not.
  const bool transposed = std::is_same_v<Real, float> && precision == ProductPrecision::kTf32;
  return Multiply({.rows = rows,
                   .cols = transposed ? cols : stride,
                   .depth = transposed ? stride : cols,
                   .a = a,
                   .a_stride = stride,
                   .b = symmetric,
                   .b_stride = stride,
                   .b_transposed = transposed,
                   .c = c,
                   .c_stride = stride,
                   .input = TypeOf<Real>(),
                   .output = TypeOf<Real>(),
                   .compute = ComputeType<Real>(precision)});
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

template absl::Status DenseProduct::MultiplyBySymmetric(int64_t, int64_t, int64_t, const float*,
                                                        const float*, float*,
                                                        ProductPrecision) const;
template absl::Status DenseProduct::MultiplyBySymmetric(int64_t, int64_t, int64_t, const double*,
                                                        const double*, double*,
                                                        ProductPrecision) const;

}  // namespace sparsefw::cuda
