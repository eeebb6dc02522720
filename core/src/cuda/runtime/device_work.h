// What the parts of the engine that work on their own are called with.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_WORK_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_WORK_H_

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "core/src/cuda/linalg/dense_product.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cuda {

// References only; cheap to copy.
struct DeviceWork {
  const DenseProduct& product;
  cudaStream_t stream = nullptr;
  const StopSignal* stop = nullptr;  // may be null

  bool stopped() const { return stop != nullptr && stop->requested(); }

  // Waits until everything enqueued so far is done, so that a look at the stop
  // signal says something about now.
  // Errors: Cancelled, what went wrong on the device
  absl::Status Await() const {
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
    return stopped() ? absl::CancelledError("the engine was told to stop") : absl::OkStatus();
  }
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_WORK_H_
