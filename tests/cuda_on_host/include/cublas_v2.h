// cuBLAS on the host: what the project uses of it, over CBLAS.
//
// GemmEx takes R_32F and R_64F throughout, or R_16F and R_16BF factors with an R_32F result;
// scalars are the host's. Sums are CBLAS's, in another order than the device's.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUBLAS_V2_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUBLAS_V2_H_

#include <cstddef>

#include "cuda_runtime.h"

using cublasHandle_t = struct cublasContext*;

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

enum cublasOperation_t {
  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,
};

enum cublasSideMode_t { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 };

enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};
using cudaDataType = cudaDataType_t;

enum cublasComputeType_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
};

enum cublasGemmAlgo_t {
  CUBLAS_GEMM_DEFAULT = -1,
};

enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };

// Tells the version in SPARSEFW_CUDA_ON_HOST_CUBLAS.
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value);
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes);
// C = alpha op(A) op(B) + beta C; column-major.
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algorithm);

// B := alpha op(A)^-1 B or alpha B op(A)^-1; column-major.
cublasStatus_t cublasDtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                              cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                              const double* alpha, const double* a, int lda, double* b, int ldb);

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUBLAS_V2_H_
