// cuSOLVER, opened with dlopen when it is first needed: a device without it has all but
// Engine::Prune. Its signatures stand here, so that nothing is built against its package.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUSOLVER_LIBRARY_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUSOLVER_LIBRARY_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct cusolverDnContext;

namespace sparsefw::cuda {

using CusolverHandle = cusolverDnContext*;

// The values of cusolverStatus_t that mean more than a failure.
enum class CusolverStatus : int { kSuccess = 0, kAllocFailed = 2, kExecutionFailed = 6 };
absl::Status ToStatus(CusolverStatus status, std::string_view call);

// The functions in use.
struct CusolverLibrary {
  CusolverStatus (*create)(CusolverHandle* handle) = nullptr;
  CusolverStatus (*set_stream)(CusolverHandle handle, cudaStream_t stream) = nullptr;
  CusolverStatus (*potrf_size)(CusolverHandle handle, cublasFillMode_t uplo, int n, double* a,
                               int lda, int* elements) = nullptr;
  CusolverStatus (*potrf)(CusolverHandle handle, cublasFillMode_t uplo, int n, double* a, int lda,
                          double* workspace, int elements, int* info) = nullptr;
  std::string name;  // what was opened

  // Stays open as long as the program; the same table at every call.
  // Errors: FailedPrecondition (DEVICE_UNAVAILABLE) with dlopen's message
  static absl::StatusOr<const CusolverLibrary*> Open();
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUSOLVER_LIBRARY_H_
