// The backends of the CUDA devices of this machine.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_

#include "absl/status/statusor.h"
#include "core/src/cuda/module.h"

namespace sparsefw::cuda {

// Looks for devices, then for cuBLAS; makes no context on any (use_device.h). One backend a
// device, in CUDA's order; they live as long as the program. A device that cannot be asked, or
// cannot run this build's code, is left out and takes no other with it.
// Errors: FailedPrecondition (DEVICE_UNAVAILABLE): no driver, no device that can be used, no
//         cuBLAS; the message says which.
absl::StatusOr<CudaModuleDevices> OpenBackends();

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_BACKEND_H_
