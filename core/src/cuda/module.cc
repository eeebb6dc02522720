// The module's one exported function.
#include "core/src/cuda/module.h"

#include "core/src/cuda/runtime/cuda_backend.h"

const sparsefw::CudaModule* sparsefw_cuda_module() {
  static constexpr sparsefw::CudaModule kModule = {sparsefw::kCudaModuleBuild,
                                                   &sparsefw::cuda::OpenBackends};
  return &kModule;
}
