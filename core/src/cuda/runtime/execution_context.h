// The execution context of engine stages: stream, cuBLAS handle, stop signal.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/dense_product.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cuda {

// Bytes of cuBLAS' workspace; the small one is enough for layers of which no
// product takes long.
inline constexpr int64_t kSmallWorkspaceBytes = int64_t{4} << 20;
inline constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // recommended for Hopper

// A stream of a device and a cuBLAS handle that works on it.
struct Lane {
  Stream stream;
  cublasHandle_t handle = nullptr;
};

// A stream with its cuBLAS handle, a workspace of its own, which makes products
// reproducible and lets them be captured in graphs, and the stop signal.
//
// Streams and handles are kept for the contexts that follow on the same device:
// making a handle takes long, and to destroy one waits for the whole device. A
// process holds one for every context that ever existed at once.
//
// Threads: one at a time; what works on it must be gone before it.
class ExecutionContext {
 public:
  // Makes `device` the current one of the calling thread. `stop` may be null.
  // Errors: FailedPrecondition (DEVICE_UNAVAILABLE), ResourceExhausted
  //         (OUT_OF_MEMORY), what went wrong on the device
  static absl::StatusOr<std::unique_ptr<ExecutionContext>> Open(int device, int64_t workspace_bytes,
                                                                const StopSignal* stop);
  ExecutionContext(const ExecutionContext&) = delete;
  ExecutionContext& operator=(const ExecutionContext&) = delete;
  // Waits for the stream. Its device must be the current one.
  ~ExecutionContext();

  cudaStream_t stream() const { return lane_.stream.get(); }
  const DenseProduct& product() const { return *product_; }

  const StopSignal* stop() const { return stop_; }  // may be null
  bool stopped() const { return stop_ != nullptr && stop_->requested(); }
  // Errors: Cancelled
  absl::Status CheckStop() const;
  // Waits until everything enqueued so far is done, so that a look at the stop
  // signal says something about now.
  // Errors: Cancelled, what went wrong on the device
  absl::Status Await() const;

  // All of a buffer on the host, and values of the host on the device, which may go then. Both
  // end with Await.
  template <typename T>
  absl::StatusOr<std::vector<T>> Download(const DeviceBuffer<T>& buffer) const {
    std::vector<T> values(static_cast<size_t>(buffer.size()));
    SPARSEFW_RETURN_IF_ERROR(
        EnqueueCopy(values.data(), buffer.data(), buffer.size(), cudaMemcpyDeviceToHost, stream()));
    SPARSEFW_RETURN_IF_ERROR(Await());
    return values;
  }
  template <typename T>
  absl::StatusOr<DeviceBuffer<T>> Upload(const std::vector<T>& values) const {
    SPARSEFW_ASSIGN_OR_RETURN(auto buffer, DeviceBuffer<T>::Create(std::ssize(values), stream()));
    SPARSEFW_RETURN_IF_ERROR(
        EnqueueCopy(buffer.data(), values.data(), buffer.size(), cudaMemcpyHostToDevice, stream()));
    SPARSEFW_RETURN_IF_ERROR(Await());
    return buffer;
  }

 private:
  ExecutionContext(int device, Lane lane, const StopSignal* stop)
      : device_(device), stop_(stop), lane_(std::move(lane)) {}

  const int device_;
  const StopSignal* const stop_;
  Lane lane_;
  DeviceBuffer<unsigned char> workspace_;
  std::optional<DenseProduct> product_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_
