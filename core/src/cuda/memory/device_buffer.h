// Memory of the device and pinned memory of the host, in stream order.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BUFFER_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

// `bytes` of the current device in the order of the stream; null for 0. Where
// there is no memory what the device's pool keeps for later is given back to the
// driver first, and the allocation tried again: the pool keeps all that is freed
// (use_device.cc), in pieces that may all be too small.
// Errors: ResourceExhausted (OUT_OF_MEMORY)
absl::StatusOr<void*> AllocateOnDevice(int64_t bytes, cudaStream_t stream);

// Gives back to the driver what the pool of the current device keeps unused. Waits for the stream.
absl::Status TrimMemoryPool(cudaStream_t stream);

// What `attempt` returns; where there is no memory, once more after TrimMemoryPool.
template <typename Attempt>
absl::Status TrimAndRetry(cudaStream_t stream, const Attempt& attempt) {
  absl::Status status = attempt();
  if (!absl::IsResourceExhausted(status)) return status;
  SPARSEFW_RETURN_IF_ERROR(TrimMemoryPool(stream));
  return attempt();
}

// `size` elements on the current device; uninitialised. Allocated and freed in the order of the
// stream: what was enqueued before may still use it. The stream must outlive it. Move only.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Errors: ResourceExhausted (OUT_OF_MEMORY)
  static absl::StatusOr<DeviceBuffer> Create(int64_t size, cudaStream_t stream) {
    DeviceBuffer buffer;
    buffer.stream_ = stream;
    buffer.size_ = size;
    SPARSEFW_ASSIGN_OR_RETURN(void* const data,
                              AllocateOnDevice(size * static_cast<int64_t>(sizeof(T)), stream));
    buffer.data_ = static_cast<T*>(data);
    return buffer;
  }
  static absl::StatusOr<DeviceBuffer> Zeroed(int64_t size, cudaStream_t stream) {
    absl::StatusOr<DeviceBuffer> buffer = Create(size, stream);
    if (buffer.ok() && size > 0) {
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          cudaMemsetAsync(buffer->data(), 0, static_cast<size_t>(size) * sizeof(T), stream));
    }
    return buffer;
  }

  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
      stream_ = other.stream_;
    }
    return *this;
  }
  ~DeviceBuffer() { Reset(); }

  void Reset() {
    if (data_ != nullptr) static_cast<void>(cudaFreeAsync(std::exchange(data_, nullptr), stream_));
    size_ = 0;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  cudaStream_t stream_ = nullptr;
};

// Enqueues the copy of `count` elements between the host and the device or within it.
template <typename T>
absl::Status EnqueueCopy(T* to, const T* from, int64_t count, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  return ToStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(T), kind, stream),
                  "cudaMemcpyAsync");
}

// The same, and waits for the stream.
template <typename T>
absl::Status CopyAndWait(T* to, const T* from, int64_t count, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(to, from, count, kind, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

// Page-locked memory of the host: copies from and to it run beside the host.
template <typename T>
class PinnedBuffer {
 public:
  static absl::StatusOr<PinnedBuffer> Create(int64_t size) {
    PinnedBuffer buffer;
    void* data = nullptr;
    const MutexLock lock(CaptureMutex());
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMallocHost(&data, static_cast<size_t>(size) * sizeof(T)));
    buffer.data_.reset(static_cast<T*>(data));
    return buffer;
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const {
      const MutexLock lock(CaptureMutex());
      static_cast<void>(cudaFreeHost(data));
    }
  };
  std::unique_ptr<T[], Free> data_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_BUFFER_H_
