// The backends of the CUDA devices of this machine.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_

#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Looks for devices, then for cuBLAS. One backend a device, in CUDA's order;
// they live as long as the program.
// Errors: FailedPrecondition (DEVICE_UNAVAILABLE): no driver, no device that
//         can run this build's code, no cuBLAS; the message says which.
absl::StatusOr<std::vector<const Backend*>> OpenBackends();

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_
