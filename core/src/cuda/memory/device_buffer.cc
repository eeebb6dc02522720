#include "core/src/cuda/memory/device_buffer.h"

#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::Status TrimMemoryPool(cudaStream_t stream) {
  // Memory that the stream has yet to free cannot be given back before.
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  int device = 0;
  cudaMemPool_t pool = nullptr;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaDeviceGetDefaultMemPool(&pool, device));
  const MutexLock lock(CaptureMutex());
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemPoolTrimTo(pool, 0));
  return absl::OkStatus();
}

absl::StatusOr<void*> AllocateOnDevice(int64_t bytes, cudaStream_t stream) {
  void* data = nullptr;
  if (bytes == 0) return data;
  SPARSEFW_RETURN_IF_ERROR(TrimAndRetry(stream, [&] {
    return ToStatus(cudaMallocAsync(&data, static_cast<size_t>(bytes), stream), "cudaMallocAsync");
  }));
  return data;
}

}  // namespace sparsefw::cuda
