// The version of the cuBLAS that was opened.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_VERSION_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_VERSION_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/src/cuda/runtime/cublas_library.h"

namespace sparsefw::cuda {

// "13.1.0". Another version may compute other bits from the same input.
absl::StatusOr<std::string> CublasVersion(const CublasLibrary& library);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUBLAS_VERSION_H_
