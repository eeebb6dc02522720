#include <cstring>

#include "tests/cuda_on_host/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace sparsefw::cuda {

// The memory of `extern __shared__` in launch.cuh; aligned as strictly as any use of it.
alignas(128) constinit thread_local double sparsefw_dynamic_shared[cuda_on_host::kMaxDynamicShared /
                                                                   sizeof(double)];

}  // namespace sparsefw::cuda

namespace cuda_on_host {

// Users cannot see that it needs no initialisation at run time and call this,
// by the name that the C++ ABI gives it, unless it is missing. That test of a
// weak symbol goes wrong in programs linked by mold, so it is not missing.
void NothingToInitialise() __asm__("_ZTHN8sparsefw4cuda23sparsefw_dynamic_sharedE");
void NothingToInitialise() {}

namespace {

char* Memory() { return reinterpret_cast<char*>(sparsefw::cuda::sparsefw_dynamic_shared); }

}  // namespace

void OpenDynamicShared([[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(Memory() + bytes, kMaxDynamicShared - bytes);
#endif
}

void FillDynamicShared(size_t bytes) {
  if (bytes > 0) std::memset(Memory(), 0xff, bytes);
}

void CloseDynamicShared() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(Memory(), kMaxDynamicShared);
#endif
}

}  // namespace cuda_on_host
