// Dense matrix products by cuBLAS, in row-major terms.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/device_buffer.h"
#include "sparsefw/backend.h"

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

// A cuBLAS handle on one stream with a workspace of its own, which makes
// products reproducible and lets them be captured in graphs. Move only; the
// stream must outlive it.
class DenseProduct {
 public:
  // kSmallWorkspace is enough for layers of which no product takes long.
  static constexpr int64_t kSmallWorkspace = int64_t{4} << 20;
  static constexpr int64_t kWorkspace = int64_t{32} << 20;  // recommended for Hopper
  static absl::StatusOr<DenseProduct> Create(cudaStream_t stream,
                                             int64_t workspace_bytes = kWorkspace);
  DenseProduct(DenseProduct&& other) noexcept;
  DenseProduct& operator=(DenseProduct&&) = delete;
  ~DenseProduct();

  // Enqueues the product.
  absl::Status Multiply(const ProductArgs& args) const;

  // C = A B in the type of the matrices, float or double. `precision` applies to
  // float only.
  template <typename Real>
  absl::Status Multiply(int64_t rows, int64_t cols, int64_t depth, const Real* a, int64_t a_stride,
                        const Real* b, int64_t b_stride, Real* c, int64_t c_stride,
                        ProductPrecision precision = ProductPrecision::kFloat32) const;

 private:
  DenseProduct(const CublasLibrary* library, cublasHandle_t handle,
               DeviceBuffer<unsigned char> workspace);

  const CublasLibrary* cublas_;
  cublasHandle_t handle_;
  DeviceBuffer<unsigned char> workspace_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_DENSE_PRODUCT_H_
