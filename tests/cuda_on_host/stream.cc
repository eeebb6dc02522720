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

// One capture, shared by the streams that take part. Used by one thread, as
// CUDA's thread-local captures are.
struct Capture {
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool is_void = false;
  bool ended = false;
  std::vector<CUstream_st*> streams;
  Operations operations;  // in the order of the calls, which every dependency agrees with
};

// The captures that this thread began and that allow it nothing unsafe.
thread_local std::vector<Capture*> strict_captures;

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

void FailCaptures(int64_t captures) { captures_to_fail = captures; }

cudaError_t RefuseInCapture() {
  if (strict_captures.empty()) return cudaSuccess;
  for (Capture* capture : strict_captures) capture->is_void = true;
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

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

// Waiting for an event of a capture makes the stream take part in it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  if (event == nullptr) return Report(cudaErrorInvalidResourceHandle);
  CUstream_st* const on = cuda_on_host::StreamOf(stream);
  sparsefw::MutexLock lock(on->mutex);
  const std::shared_ptr<Capture>& other = event->capture;
  const bool other_goes_on = other != nullptr && !other->ended;
  if (on->capture != nullptr && on->capture != other) {
    on->capture->is_void = true;
    return Report(other_goes_on ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
  }
  if (on->capture == nullptr && other_goes_on) {
    on->capture = other;
    other->streams.push_back(on);
  }
  return cudaSuccess;
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

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = DeviceState(); error != cudaSuccess) return Report(error);
  // The default stream cannot be captured.
  if (stream == nullptr) return Report(cudaErrorStreamCaptureUnsupported);
  sparsefw::MutexLock lock(stream->mutex);
  if (stream->capture != nullptr) return Report(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->streams = {stream};
  if (mode != cudaStreamCaptureModeRelaxed) strict_captures.push_back(stream->capture.get());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (graph == nullptr) return Report(cudaErrorInvalidValue);
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr) return Report(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) {
    capture->is_void = true;
    return Report(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return Report(cudaErrorStreamCaptureWrongThread);
  }
  std::erase(strict_captures, capture.get());
  capture->ended = true;
  for (CUstream_st* member : capture->streams) {
    sparsefw::MutexLock lock(member->mutex);
    member->capture = nullptr;
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
