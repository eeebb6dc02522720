// The error of a CUDA call as the sources of kernels return it.
//
// They do not know absl::Status: nvcc reads a source once for the host and once for every
// architecture, and Abseil's headers alone took it longer than the kernels. The engine's other
// sources make a Status of it: cuda_status.h.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ERROR_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ERROR_H_

#include <cuda_runtime.h>

namespace sparsefw::cuda {

struct [[nodiscard]] CudaError {
  cudaError_t code = cudaSuccess;
  const char* call = "";  // that failed, as it stands in the code; a literal

  bool ok() const { return code == cudaSuccess; }
};

// For SPARSEFW_RETURN_IF_CUDA_ERROR: what already names its call keeps it.
inline CudaError ErrorOf(cudaError_t code, const char* call) { return {code, call}; }
inline CudaError ErrorOf(const CudaError& error, const char*) { return error; }

}  // namespace sparsefw::cuda

// Evaluates a CUDA call or a function that returns a CudaError; returns from the function, which
// returns one too, unless it succeeded.
#define SPARSEFW_RETURN_IF_CUDA_ERROR(expression)                 \
  do {                                                            \
    if (const ::sparsefw::cuda::CudaError cuda_error_ =           \
            ::sparsefw::cuda::ErrorOf((expression), #expression); \
        !cuda_error_.ok())                                        \
      return cuda_error_;                                         \
  } while (false)

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ERROR_H_
