// The arrays of a view of device memory, which are allocated and freed together.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_ARRAYS_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_ARRAYS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_buffer.h"

namespace sparsefw::cuda {

// What lays out a view adds each of its arrays once, and serves both for allocating them and for
// counting their bytes. Each is an allocation of its own, so that the checkers of a device see
// where one ends. In the order of the stream, as a DeviceBuffer. Move only.
class DeviceArrays {
 public:
  // Counts only.
  DeviceArrays() = default;
  explicit DeviceArrays(cudaStream_t stream) : allocates_(true), stream_(stream) {}

  // `count` elements; uninitialised. Does nothing after an error.
  template <typename T>
  void Add(int64_t count, T*& array) {
    Place(count, array, &Bytes::Create);
  }
  template <typename T>
  void AddZeroed(int64_t count, T*& array) {
    Place(count, array, &Bytes::Zeroed);
  }

  // The first error of all: ResourceExhausted (OUT_OF_MEMORY), what went wrong on the device
  const absl::Status& status() const { return status_; }
  int64_t bytes() const { return bytes_; }

 private:
  using Bytes = DeviceBuffer<unsigned char>;

  template <typename T>
  void Place(int64_t count, T*& array, absl::StatusOr<Bytes> (*make)(int64_t, cudaStream_t)) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    bytes_ += bytes;
    if (!allocates_ || !status_.ok()) return;
    absl::StatusOr<Bytes> made = make(bytes, stream_);
    status_ = made.status();
    if (!made.ok()) return;
    array = reinterpret_cast<T*>(made->data());
    buffers_.push_back(*std::move(made));
  }

  bool allocates_ = false;
  cudaStream_t stream_ = nullptr;
  absl::Status status_;
  int64_t bytes_ = 0;
  std::vector<Bytes> buffers_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_ARRAYS_H_
