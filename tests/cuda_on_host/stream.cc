// Streams, events and graphs. A stream does its work at once, so waiting for it
// or for an event means nothing; what remains is capture and its rules.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sparsefw/mutex.h"
#include "tests/cuda_on_host/control.h"
#include "tests/cuda_on_host/runtime.h"

namespace {

using cuda_on_host::Operation;
using Operations = std::vector<Operation>;

// One capture, of one stream and used by one thread, as CUDA's thread-local captures are.
struct Capture {
  std::thread::id thread;
  bool is_void = false;
  Operations operations;  // in the order of the calls
};

// The captures that this thread began.
thread_local std::vector<Capture*> captures;

std::atomic<int64_t> captures_to_fail = 0;

}  // namespace

struct CUstream_st {
  sparsefw::Mutex mutex;  // held while an operation runs
  std::shared_ptr<Capture> capture;
};

struct CUevent_st {
  std::shared_ptr<Capture> capture;  // the one it was recorded in, if it was
  std::chrono::steady_clock::time_point recorded;
};

struct CUgraph_st {
  std::shared_ptr<const Operations> operations;
};

struct CUgraphExec_st {
  std::shared_ptr<const Operations> operations;
};

namespace cuda_on_host {
namespace {

CUstream_st* StreamOf(cudaStream_t stream) {
  static auto* default_stream = new CUstream_st;
  return stream == nullptr ? default_stream : stream;
}

}  // namespace

cudaError_t Enqueue(cudaStream_t stream, Operation operation) {
  CUstream_st* const on = StreamOf(stream);
  sparsefw::MutexLock lock(on->mutex);
  if (on->capture == nullptr) {
    operation();
    return cudaSuccess;
  }
  if (on->capture->is_void) return cudaErrorStreamCaptureInvalidated;
  on->capture->operations.push_back(std::move(operation));
  return cudaSuccess;
}

void FailCaptures(int64_t count) { captures_to_fail = count; }

cudaError_t RefuseInCapture() {
  if (captures.empty()) return cudaSuccess;
  for (Capture* capture : captures) capture->is_void = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t RefuseInCapture(cudaStream_t stream) {
  CUstream_st* const on = StreamOf(stream);
  sparsefw::MutexLock lock(on->mutex);
  if (on->capture == nullptr) return cudaSuccess;
  on->capture->is_void = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace cuda_on_host

using cuda_on_host::DeviceState;
using cuda_on_host::RefuseInCapture;
using cuda_on_host::Report;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (stream == nullptr || flags > cudaStreamNonBlocking) return Report(cudaErrorInvalidValue);
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return Report(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  return Report(RefuseInCapture(stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (event == nullptr) return Report(cudaErrorInvalidValue);
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (event == nullptr) return Report(cudaErrorInvalidResourceHandle);
  CUstream_st* const on = cuda_on_host::StreamOf(stream);
  sparsefw::MutexLock lock(on->mutex);
  event->capture = on->capture;
  event->recorded = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (event == nullptr) return Report(cudaErrorInvalidResourceHandle);
  if (event->capture == nullptr) return cudaSuccess;
  event->capture->is_void = true;
  return Report(cudaErrorCapturedEvent);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (milliseconds == nullptr || begin == nullptr || end == nullptr) {
    return Report(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->recorded - begin->recorded).count();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return Report(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  // The default stream cannot be captured.
  if (stream == nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  sparsefw::MutexLock lock(stream->mutex);
  if (stream->capture != nullptr) return Report(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->thread = std::this_thread::get_id();
  captures.push_back(stream->capture.get());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (graph == nullptr) return Report(cudaErrorInvalidValue);
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr) return Report(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->thread != std::this_thread::get_id()) {
    return Report(cudaErrorStreamCaptureWrongThread);
  }
  std::erase(captures, capture.get());
  {
    sparsefw::MutexLock lock(stream->mutex);
    stream->capture = nullptr;
  }
  if (capture->is_void) return Report(cudaErrorStreamCaptureInvalidated);
  if (captures_to_fail.load() > 0) {
    --captures_to_fail;
    return Report(cudaErrorStreamCaptureInvalidated);
  }
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  *graph = new CUgraph_st{std::make_shared<const Operations>(std::move(capture->operations))};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (exec == nullptr || graph == nullptr) return Report(cudaErrorInvalidValue);
  *exec = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (exec == nullptr) return Report(cudaErrorInvalidValue);
  return Report(cuda_on_host::Enqueue(stream, [operations = exec->operations] {
    for (const Operation& operation : *operations) operation();
  }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (exec == nullptr) return Report(cudaErrorInvalidValue);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == nullptr) return Report(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
