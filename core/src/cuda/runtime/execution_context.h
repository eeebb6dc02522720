// The execution context of engine stages: stream, cuBLAS handle, stop signal.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cublas_library.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cuda {

// Bytes of cuBLAS' workspace; the small one is enough for layers of which no product takes long.
inline constexpr int64_t kSmallWorkspaceBytes = int64_t{4} << 20;
inline constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // recommended for Hopper

// A stream of a device and a cuBLAS handle that works on it.
struct Lane {
  Stream stream;
  cublasHandle_t handle = nullptr;
};

// A factor, row-major, the stride in elements. A transposed one is stored the other way round.
struct Factor {
  const void* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

// C = alpha A B + beta C with A [rows, depth], B [depth, cols], C [rows, cols], row-major.
struct ProductArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  Factor a;
  Factor b;
  void* c = nullptr;
  int64_t c_stride = 0;
  cudaDataType_t input = CUDA_R_32F;  // of A and B; C and sums are in float64 with it, else float32
  double alpha = 1;
  double beta = 0;
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

  // Enqueues a dense product by cuBLAS.
  absl::Status Multiply(const ProductArgs& args) const;
  // C = A G, G symmetric [cols, cols]; A and C have `rows` rows. Rows of all of them are `stride`
  // elements apart, and the padding of A and G is 0; that of C becomes 0.
  template <typename Real>
  absl::Status MultiplyBySymmetric(int64_t rows, int64_t cols, int64_t stride, const Real* a,
                                   const Real* symmetric, Real* c) const {
    return Multiply({.rows = rows,
                     .cols = stride,
                     .depth = cols,
                     .a = {a, stride},
                     .b = {symmetric, stride},
                     .c = c,
                     .c_stride = stride,
                     .input = std::is_same_v<Real, double> ? CUDA_R_64F : CUDA_R_32F});
  }
  // X := L^-1 X in float64, L [size, size] lower triangular, X [size, cols].
  absl::Status SolveLower(int64_t size, int64_t cols, const double* lower, int64_t lower_stride,
                          double* x, int64_t x_stride) const;

  const StopSignal* stop() const { return stop_; }  // may be null
  bool stopped() const { return stop_ != nullptr && stop_->requested(); }
  // Errors: Cancelled
  absl::Status CheckStop() const;
  // Waits until everything enqueued so far is done, so that a look at the stop
  // signal says something about now.
  // Errors: Cancelled, what went wrong on the device
  absl::Status Await() const;

  // What `launch` adds to *counter, which is 0 before it. Ends with Await.
  template <typename Count, typename Launch>
  absl::StatusOr<Count> Counted(Count* counter, const Launch& launch) const {
    Count count = 0;
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(counter, 0, sizeof(Count), stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(launch());
    SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(&count, counter, 1, cudaMemcpyDeviceToHost, stream()));
    SPARSEFW_RETURN_IF_ERROR(Await());
    return count;
  }

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
  ExecutionContext(int device, const CublasLibrary& cublas, Lane lane, const StopSignal* stop)
      : device_(device), cublas_(cublas), stop_(stop), lane_(std::move(lane)) {}

  const int device_;
  const CublasLibrary& cublas_;
  const StopSignal* const stop_;
  Lane lane_;
  DeviceBuffer<unsigned char> workspace_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_EXECUTION_CONTEXT_H_
