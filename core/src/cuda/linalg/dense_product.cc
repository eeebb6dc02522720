#include "core/src/cuda/linalg/dense_product.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

cublasComputeType_t ComputeType(ProductPrecision precision) {
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

DenseProduct::DenseProduct(const CublasLibrary* library, cublasHandle_t handle,
                           DeviceBuffer<unsigned char> workspace)
    : cublas_(library), handle_(handle), workspace_(std::move(workspace)) {}

DenseProduct::DenseProduct(DenseProduct&& other) noexcept
    : cublas_(other.cublas_),
      handle_(std::exchange(other.handle_, nullptr)),
      workspace_(std::move(other.workspace_)) {}

DenseProduct::~DenseProduct() {
  if (handle_ == nullptr) return;
  const MutexLock lock(CaptureMutex());
  static_cast<void>(cublas_->destroy(handle_));
}

absl::StatusOr<DenseProduct> DenseProduct::Create(cudaStream_t stream, int64_t workspace_bytes) {
  SPARSEFW_ASSIGN_OR_RETURN(const CublasLibrary* library, CublasLibrary::Open());
  SPARSEFW_ASSIGN_OR_RETURN(auto workspace,
                            DeviceBuffer<unsigned char>::Create(workspace_bytes, stream));
  cublasHandle_t handle = nullptr;
  {
    const MutexLock lock(CaptureMutex());
    SPARSEFW_CUDA_RETURN_IF_ERROR(library->create(&handle));
  }
  DenseProduct product(library, handle, std::move(workspace));
  SPARSEFW_CUDA_RETURN_IF_ERROR(library->set_stream(handle, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(library->set_workspace(handle, product.workspace_.data(),
                                                       static_cast<size_t>(workspace_bytes)));
  return product;
}

// cuBLAS thinks in columns: what it takes for C^T = B^T A^T is C = A B by rows.
absl::Status DenseProduct::Multiply(const ProductArgs& args) const {
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  const float alpha32 = static_cast<float>(args.alpha);
  const float beta32 = static_cast<float>(args.beta);
  const bool wide = args.compute == CUBLAS_COMPUTE_64F;
  const void* alpha = wide ? static_cast<const void*>(&args.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&args.beta) : &beta32;
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  SPARSEFW_CUDA_RETURN_IF_ERROR(cublas_->gemm_ex(
      handle_, operation(args.b_transposed), operation(args.a_transposed),
      static_cast<int>(args.cols), static_cast<int>(args.rows), static_cast<int>(args.depth), alpha,
      args.b, args.input, static_cast<int>(args.b_stride), args.a, args.input,
      static_cast<int>(args.a_stride), beta, args.c, args.output, static_cast<int>(args.c_stride),
      args.compute, CUBLAS_GEMM_DEFAULT));
  return absl::OkStatus();
}

template <typename Real>
absl::Status DenseProduct::Multiply(int64_t rows, int64_t cols, int64_t depth, const Real* a,
                                    int64_t a_stride, const Real* b, int64_t b_stride, Real* c,
                                    int64_t c_stride, ProductPrecision precision) const {
  constexpr bool kWide = sizeof(Real) == sizeof(double);
  constexpr cudaDataType_t kType = kWide ? CUDA_R_64F : CUDA_R_32F;
  return Multiply({.rows = rows,
                   .cols = cols,
                   .depth = depth,
                   .a = a,
                   .a_stride = a_stride,
                   .b = b,
                   .b_stride = b_stride,
                   .c = c,
                   .c_stride = c_stride,
                   .input = kType,
                   .output = kType,
                   .compute = kWide ? CUBLAS_COMPUTE_64F : ComputeType(precision)});
}

template absl::Status DenseProduct::Multiply(int64_t, int64_t, int64_t, const float*, int64_t,
                                             const float*, int64_t, float*, int64_t,
                                             ProductPrecision) const;
template absl::Status DenseProduct::Multiply(int64_t, int64_t, int64_t, const double*, int64_t,
                                             const double*, int64_t, double*, int64_t,
                                             ProductPrecision) const;

}  // namespace sparsefw::cuda
