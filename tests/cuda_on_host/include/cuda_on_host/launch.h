// cudaLaunchKernelEx: a kernel and its arguments become a closure.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "errors.h"
#include "runtime_api.h"
#include "vector_types.h"

struct cudaLaunchAttribute;  // none is emulated

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace cuda_on_host {

// Checks the shape and enqueues `thread`, which every thread of every block
// calls. `kernel` is what cudaFuncSetAttribute knows it by.
cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel,
                         std::function<void()> thread);

}  // namespace cuda_on_host

// The arguments convert to the kernel's parameters as in CUDA: without a word,
// whatever the project's own warnings say.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return [&](Parameters... parameters) {
    return cuda_on_host::LaunchKernel(*config, reinterpret_cast<const void*>(kernel),
                                      [kernel, copies = std::tuple<Parameters...>(parameters...)] {
                                        std::apply(kernel, copies);
                                      });
  }(std::forward<Arguments>(arguments)...);
}
#pragma GCC diagnostic pop

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_
