// The memory behind launch.cuh's DynamicShared.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_DYNAMIC_SHARED_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_DYNAMIC_SHARED_H_

#include <cstddef>

namespace cuda_on_host {

inline constexpr size_t kMaxDynamicShared = 232448;  // 227 KiB, Hopper's

// From now on the first `bytes` may be used; under AddressSanitizer no others.
void OpenDynamicShared(size_t bytes);
// Fills them with 0xff.
void FillDynamicShared(size_t bytes);
void CloseDynamicShared();

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_DYNAMIC_SHARED_H_
