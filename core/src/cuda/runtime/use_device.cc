#include "core/src/cuda/runtime/use_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/mutex.h"

namespace sparsefw::cuda {
namespace {

// True at the first call for a device.
bool IsFirstUse(int device) {
  static auto* mutex = new Mutex;  // engines may end after static objects do
  static auto* used = new std::set<int>;
  const MutexLock lock(*mutex);
  return used->insert(device).second;
}

// Waiting for a stream would otherwise keep a core of the host busy for every
// engine. Only a matter of the host's time, so an error counts for nothing.
void WaitBlocking() {
  if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // nobody else should find it
  }
}

// Freed memory stays with the process; device_buffer.h says what gives it back. By default all of
// it would go back to the driver whenever a stream is waited for, and every job would map its
// memory anew, which holds up the others on the device. The driver and cuBLAS load kernels when
// they are first used, and get the rest; that 1 GiB is enough for them was not measured. Only a
// matter of speed, so an error counts for nothing.
void KeepFreedMemory(int device) {
  constexpr uint64_t kForTheDriver = uint64_t{1} << 30;
  cudaMemPool_t pool = nullptr;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  uint64_t threshold = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
    threshold = total_bytes - std::min<uint64_t>(total_bytes, kForTheDriver);
  }
  if (cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess ||
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // nobody else should find it
  }
}

}  // namespace

absl::Status UseDevice(int device) {
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaSetDevice(device));
  if (IsFirstUse(device)) {
    WaitBlocking();
    KeepFreedMemory(device);
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::cuda
