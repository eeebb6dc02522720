// Memory of the device and of the host, copies and fills.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "sparsefw/mutex.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/runtime.h"

struct CUmemPoolHandle_st {};

namespace cuda_on_host {
namespace {

// As CUDA promises.
constexpr size_t kAlignment = 256;
// cudaDeviceProp::memPitch of every card so far.
constexpr size_t kMostPitch = INT_MAX;

std::atomic<int64_t> copied_to_device = 0;
std::atomic<int64_t> pinned_allocations = 0;
std::atomic<size_t> largest_until_trimmed = SIZE_MAX;

struct Allocations {
  sparsefw::Mutex mutex;
  std::map<uintptr_t, size_t> sizes ABSL_GUARDED_BY(mutex);  // by address
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;
  size_t peak ABSL_GUARDED_BY(mutex) = 0;
};

Allocations& Device() {
  static auto* allocations = new Allocations;
  return *allocations;
}

cudaError_t Allocate(void** pointer, size_t bytes) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return error;
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  const size_t limit = DeviceBytes();
  if (device.bytes > limit || bytes > limit - device.bytes) return cudaErrorMemoryAllocation;
  // Not rounded up: AddressSanitizer is to see the first byte behind it.
  if (posix_memalign(pointer, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*pointer, 0xff, bytes);
  device.sizes.emplace(reinterpret_cast<uintptr_t>(*pointer), bytes);
  device.bytes += bytes;
  device.peak = std::max(device.peak, device.bytes);
  return cudaSuccess;
}

cudaError_t Release(void* pointer) {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  const auto found = device.sizes.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == device.sizes.end()) return cudaErrorInvalidValue;
  device.bytes -= found->second;
  device.sizes.erase(found);
  std::free(pointer);
  return cudaSuccess;
}

// Whether any part of the range lies in the device's memory.
bool TouchesDevice(const void* pointer, size_t bytes) {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  const auto first = reinterpret_cast<uintptr_t>(pointer);
  auto next = device.sizes.lower_bound(first + bytes);
  if (next == device.sizes.begin()) return false;
  --next;
  return next->first + next->second > first;
}

// The pointers must be what the kind of copy says. The real thing cannot tell
// in every case; a copy of the wrong kind is a bug in every case.
bool RightPlaces(const void* to, size_t to_bytes, const void* from, size_t from_bytes,
                 cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device ? IsDeviceRange(to, to_bytes) : !TouchesDevice(to, to_bytes)) &&
         (from_device ? IsDeviceRange(from, from_bytes) : !TouchesDevice(from, from_bytes));
}

size_t Extent(size_t pitch, size_t width, size_t height) { return pitch * (height - 1) + width; }

cudaError_t CopyRows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (width == 0 || height == 0) return cudaSuccess;
  if (!RightPlaces(to, Extent(to_pitch, width, height), from, Extent(from_pitch, width, height),
                   kind)) {
    return Report(cudaErrorInvalidValue);
  }
  return Report(Enqueue(stream, [=] {
    if (kind == cudaMemcpyHostToDevice) copied_to_device += static_cast<int64_t>(width * height);
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<char*>(to) + row * to_pitch,
                  static_cast<const char*>(from) + row * from_pitch, width);
    }
  }));
}

cudaError_t CheckPitches(size_t to_pitch, size_t from_pitch, size_t width) {
  const bool refused =
      width > to_pitch || width > from_pitch || to_pitch > kMostPitch || from_pitch > kMostPitch;
  return refused ? cudaErrorInvalidPitchValue : cudaSuccess;
}

}  // namespace

size_t DeviceBytes() {
  const char* bytes = std::getenv("SPARSEFW_CUDA_ON_HOST_MEMORY");
  return bytes == nullptr ? size_t{8} << 30 : std::strtoull(bytes, nullptr, 10);
}

bool IsDeviceRange(const void* pointer, size_t bytes) {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  const auto first = reinterpret_cast<uintptr_t>(pointer);
  auto next = device.sizes.upper_bound(first);
  if (next == device.sizes.begin()) return false;
  --next;
  return first - next->first <= next->second && bytes <= next->second - (first - next->first);
}

size_t AllocatedBytes() {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  return device.bytes;
}

size_t PeakBytes() {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  return device.peak;
}

int64_t CopiedToDevice() { return copied_to_device; }

int64_t PinnedAllocations() { return pinned_allocations; }

void FailUntilTrimmed(size_t bytes) { largest_until_trimmed = bytes; }

void ResetPeak() {
  Allocations& device = Device();
  sparsefw::MutexLock lock(device.mutex);
  device.peak = device.bytes;
}

}  // namespace cuda_on_host

using cuda_on_host::DeviceBytes;
using cuda_on_host::DeviceState;
using cuda_on_host::Enqueue;
using cuda_on_host::IsDeviceRange;
using cuda_on_host::RefuseInCapture;
using cuda_on_host::Report;

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  const size_t used = cuda_on_host::AllocatedBytes();
  *total_bytes = DeviceBytes();
  *free_bytes = *total_bytes - (used < *total_bytes ? used : *total_bytes);
  return cudaSuccess;
}

// CUDA would make it a node of the graph, whose memory it is then. Nobody here needs that.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = RefuseInCapture(stream); error != cudaSuccess) return Report(error);
  if (bytes == 0) return Report(cudaErrorInvalidValue);
  if (bytes > cuda_on_host::largest_until_trimmed) return Report(cudaErrorMemoryAllocation);
  return Report(cuda_on_host::Allocate(pointer, bytes));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (const cudaError_t error = RefuseInCapture(stream); error != cudaSuccess) return Report(error);
  return Report(cuda_on_host::Release(pointer));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || device < 0 || device >= count) {
    return Report(cudaErrorInvalidDevice);
  }
  static CUmemPoolHandle_st the_pool;
  *pool = &the_pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  const bool known = attribute == cudaMemPoolAttrReleaseThreshold;
  return Report(pool == nullptr || !known || value == nullptr ? cudaErrorInvalidValue
                                                              : cudaSuccess);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t /*bytes_to_keep*/) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (const cudaError_t error = RefuseInCapture(); error != cudaSuccess) return Report(error);
  if (pool == nullptr) return Report(cudaErrorInvalidValue);
  cuda_on_host::largest_until_trimmed = SIZE_MAX;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned /*flags*/) {
  if (const cudaError_t error = RefuseInCapture(); error != cudaSuccess) return Report(error);
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  ++cuda_on_host::pinned_allocations;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(pointer, cuda_on_host::kAlignment, bytes) != 0) {
    return Report(cudaErrorMemoryAllocation);
  }
  std::memset(*pointer, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t error = RefuseInCapture(); error != cudaSuccess) return Report(error);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cuda_on_host::CopyRows(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const cudaError_t error = cuda_on_host::CheckPitches(to_pitch, from_pitch, width);
  if (error != cudaSuccess) return Report(error);
  return cuda_on_host::CopyRows(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (bytes == 0) return cudaSuccess;
  if (!IsDeviceRange(to, bytes)) return Report(cudaErrorInvalidValue);
  return Report(Enqueue(stream, [=] { std::memset(to, value, bytes); }));
}
