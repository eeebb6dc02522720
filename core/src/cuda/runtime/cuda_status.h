// The one table from CUDA's and cuBLAS' error codes to absl::Status.
//
//   out of memory                      ResourceExhausted   OUT_OF_MEMORY
//   no device, no or too old a driver  FailedPrecondition  DEVICE_UNAVAILABLE
//   a fault that spoils the device     Internal            DEVICE_LOST
//     (illegal address, launch failure, ECC error ...)
//   anything else                      Internal
//
// Messages name the call, the error and CUDA's own words for it.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_STATUS_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_STATUS_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// `call` is what failed, as it stands in the code: "cudaMallocAsync(...)".
absl::Status ToStatus(cudaError_t error, std::string_view call);
absl::Status ToStatus(cublasStatus_t status, std::string_view call);
// The second line of the table.
absl::Status Unavailable(const std::string& message);

// The status of a launch, which names the failed call itself; the second form is for the macro.
absl::Status ToStatus(const CudaError& error);
inline absl::Status ToStatus(const CudaError& error, std::string_view) { return ToStatus(error); }

// Whether nothing more can be done on the device in this process.
bool IsSticky(cudaError_t error);

}  // namespace sparsefw::cuda

// Evaluates a launch, a CUDA or a cuBLAS call; returns from the function unless it succeeded.
#define SPARSEFW_CUDA_RETURN_IF_ERROR(expression)                                      \
  do {                                                                                 \
    absl::Status cuda_status_ = ::sparsefw::cuda::ToStatus((expression), #expression); \
    if (!cuda_status_.ok()) return cuda_status_;                                       \
  } while (false)

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_STATUS_H_
