// cuBLAS, opened with dlopen once a device was found: programs start on
// machines that have none, and pay nothing for it there.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_LIBRARY_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_LIBRARY_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/src/cuda/runtime/cuda_status.h"

namespace sparsefw::cuda {

// The functions in use, with cuBLAS' own signatures.
struct CublasLibrary {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  // Spelled out: the header overloads the name.
  cublasStatus_t (*gemm_ex)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType_t a_type, int lda, const void* b, cudaDataType_t b_type,
                            int ldb, const void* beta, void* c, cudaDataType_t c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) = nullptr;
  decltype(&cublasDtrsm_v2) dtrsm = nullptr;
  cublasStatus_t (*get_property)(libraryPropertyType type, int* value) = nullptr;
  std::string name;  // what was opened

  // Stays open as long as the program; the same table at every call.
  // Errors: FailedPrecondition (DEVICE_UNAVAILABLE) with dlopen's message.
  static absl::StatusOr<const CublasLibrary*> Open();

  // "13.1.0". Another version may compute other bits from the same input.
  absl::StatusOr<std::string> Version() const {
    int major = 0;
    int minor = 0;
    int patch = 0;
    SPARSEFW_CUDA_RETURN_IF_ERROR(get_property(MAJOR_VERSION, &major));
    SPARSEFW_CUDA_RETURN_IF_ERROR(get_property(MINOR_VERSION, &minor));
    SPARSEFW_CUDA_RETURN_IF_ERROR(get_property(PATCH_LEVEL, &patch));
    return absl::StrFormat("%d.%d.%d", major, minor, patch);
  }
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_LIBRARY_H_
