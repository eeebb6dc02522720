// cublas_v2.h over CBLAS, and the engine's table of its functions.
#include <cblas.h>
#include <cublas_v2.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/src/cuda/runtime/cublas_library.h"
#include "sparsefw/dtype.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/runtime.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

struct Factor {
  cublasOperation_t operation;
  const void* data;
  cudaDataType type;
  int rows, cols;  // as stored, column-major
  int stride;      // between columns

  CBLAS_TRANSPOSE transpose() const { return operation == CUBLAS_OP_N ? CblasNoTrans : CblasTrans; }
};

struct Product {
  int m, n, k;
  double alpha, beta;
  Factor a, b;
  void* c;
  int c_stride;
};

sparsefw::DType DTypeOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return sparsefw::DType::kF16;
    case CUDA_R_16BF:
      return sparsefw::DType::kBF16;
    case CUDA_R_64F:
      return sparsefw::DType::kF64;
    default:
      return sparsefw::DType::kF32;
  }
}

size_t BytesOf(cudaDataType type) { return sparsefw::SizeOf(DTypeOf(type)); }

// The factor as floats, without gaps between its columns.
std::vector<float> Widened(const Factor& factor) {
  const auto rows = static_cast<size_t>(factor.rows);
  const auto cols = static_cast<size_t>(factor.cols);
  const size_t column_bytes = static_cast<size_t>(factor.stride) * BytesOf(factor.type);
  std::vector<float> wide(rows * cols);
  for (size_t col = 0; col < cols; ++col) {
    sparsefw::ConvertToFloat(static_cast<const char*>(factor.data) + col * column_bytes,
                             DTypeOf(factor.type), rows, wide.data() + col * rows);
  }
  return wide;
}

void Multiply(const Product& product) {
  const Factor& a = product.a;
  const Factor& b = product.b;
  if (a.type == CUDA_R_64F) {
    cblas_dgemm(CblasColMajor, a.transpose(), b.transpose(), product.m, product.n, product.k,
                product.alpha, static_cast<const double*>(a.data), a.stride,
                static_cast<const double*>(b.data), b.stride, product.beta,
                static_cast<double*>(product.c), product.c_stride);
    return;
  }
  const std::vector<float> wide_a = Widened(a);
  const std::vector<float> wide_b = Widened(b);
  cblas_sgemm(CblasColMajor, a.transpose(), b.transpose(), product.m, product.n, product.k,
              static_cast<float>(product.alpha), wide_a.data(), std::max(1, a.rows), wide_b.data(),
              std::max(1, b.rows), static_cast<float>(product.beta), static_cast<float*>(product.c),
              product.c_stride);
}

bool TypesSupported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_64F:
      return a == CUDA_R_64F && b == CUDA_R_64F && c == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F:
      return a == b && a != CUDA_R_64F && c == CUDA_R_32F;
    default:
      return false;
  }
}

// CBLAS's own accesses are hidden from AddressSanitizer, hence this.
bool OnDevice(const char* name, const void* data, int rows, int cols, int stride, size_t bytes) {
  if (rows == 0 || cols == 0) return true;
  const size_t elements =
      static_cast<size_t>(stride) * static_cast<size_t>(cols - 1) + static_cast<size_t>(rows);
  if (cuda_on_host::IsDeviceRange(data, elements * bytes)) return true;
  std::fprintf(stderr,
               "CUDA on the host: cuBLAS: %s, %d columns of %d, stride %d, does not lie in "
               "one allocation of the device\n",
               name, cols, rows, stride);
  return false;
}

std::atomic<int64_t> handles_made = 0;

}  // namespace

int64_t cuda_on_host::CublasHandlesMade() { return handles_made; }

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (cuda_on_host::DeviceState() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  ++handles_made;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  const char* const version = std::getenv("SPARSEFW_CUDA_ON_HOST_CUBLAS");
  int parts[] = {13, 0, 0};
  if (version != nullptr) {
    static_cast<void>(std::sscanf(version, "%d.%d.%d", &parts[0], &parts[1], &parts[2]));
  }
  *value = parts[type];
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes > 0 && !cuda_on_host::IsDeviceRange(workspace, bytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t /*algorithm*/) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cuda_on_host::DeviceState() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (m < 0 || n < 0 || k < 0 || alpha == nullptr || beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!TypesSupported(a_type, b_type, c_type, compute_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool plain_a = transa == CUBLAS_OP_N;
  const bool plain_b = transb == CUBLAS_OP_N;
  Product product = {.m = m,
                     .n = n,
                     .k = k,
                     .alpha = 0,
                     .beta = 0,
                     .a = {transa, a, a_type, plain_a ? m : k, plain_a ? k : m, lda},
                     .b = {transb, b, b_type, plain_b ? k : n, plain_b ? n : k, ldb},
                     .c = c,
                     .c_stride = ldc};
  if (lda < std::max(1, product.a.rows) || ldb < std::max(1, product.b.rows) ||
      ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool in_double = c_type == CUDA_R_64F;
  product.alpha =
      in_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  product.beta = in_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!OnDevice("A", a, product.a.rows, product.a.cols, lda, BytesOf(a_type)) ||
      !OnDevice("B", b, product.b.rows, product.b.cols, ldb, BytesOf(b_type)) ||
      !OnDevice("C", c, m, n, ldc, BytesOf(c_type))) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const cudaError_t enqueued =
      cuda_on_host::Enqueue(handle->stream, [product] { Multiply(product); });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasDtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                              cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                              const double* alpha, const double* a, int lda, double* b, int ldb) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (cuda_on_host::DeviceState() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const int size = side == CUBLAS_SIDE_LEFT ? m : n;
  if (m < 0 || n < 0 || lda < std::max(1, size) || ldb < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!OnDevice("A", a, size, size, lda, 8) || !OnDevice("B", b, m, n, ldb, 8)) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const cudaError_t enqueued = cuda_on_host::Enqueue(handle->stream, [=, factor = *alpha] {
    cblas_dtrsm(CblasColMajor, side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight,
                uplo == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper,
                trans == CUBLAS_OP_N ? CblasNoTrans : CblasTrans,
                diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit, m, n, factor, a, lda, b, ldb);
  });
  return enqueued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

namespace sparsefw::cuda {

absl::StatusOr<const CublasLibrary*> CublasLibrary::Open() {
  static const auto* library = new CublasLibrary{
      .create = &cublasCreate_v2,
      .destroy = &cublasDestroy_v2,
      .set_stream = &cublasSetStream_v2,
      .set_workspace = &cublasSetWorkspace_v2,
      .gemm_ex = &cublasGemmEx,
      .dtrsm = &cublasDtrsm_v2,
      .get_property = &cublasGetProperty,
      .name = "CBLAS in place of cuBLAS (for tests)",
  };
  return library;
}

}  // namespace sparsefw::cuda
