// Owners of what CUDA hands out: streams, events, graphs.
//
// Streams rule: an engine has one stream; everything it does is enqueued there,
// its memory included (device_buffer.h), so order needs no other means. What
// engines share, a Gram, is complete before they see it and outlives them
// (device_gram.h). Destructors of these owners wait for nothing and cannot
// report: what they release is known to be idle, or the device is lost anyway.
//
// Waiting blocks the calling thread and leaves its core to others: UseDevice
// (use_device.cc) asks for that for streams, CreateEvent for events.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_STREAM_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_STREAM_H_

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/mutex.h"

namespace sparsefw::cuda {

// Gives back a handle.
template <typename Handle, cudaError_t (*Release)(Handle)>
struct Releaser {
  void operator()(Handle handle) const { static_cast<void>(Release(handle)); }
};
template <typename Handle, cudaError_t (*Release)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Releaser<Handle, Release>>;

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Event = Owner<cudaEvent_t, cudaEventDestroy>;
using Graph = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

// A stream that does not wait for the default one.
inline absl::StatusOr<Stream> CreateStream() {
  cudaStream_t stream = nullptr;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

// An event that says only that something is done, not when.
inline absl::StatusOr<Event> CreateEvent() {
  cudaEvent_t event = nullptr;
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  return Event(event);
}

// Some calls wait for the whole device (making and destroying cuBLAS handles
// and pinned memory, trimming the memory pool), and would end a capture on any of
// its streams, whatever thread it is in. Held by them and by CaptureGraph.
inline Mutex& CaptureMutex() {
  static auto* mutex = new Mutex;  // engines may end after static objects do
  return *mutex;
}

// The work that `enqueue(stream)` puts on the stream, as a graph that can be launched
// again and again.
template <typename Enqueue>
absl::StatusOr<GraphExec> CaptureGraph(cudaStream_t stream, const Enqueue& enqueue) {
  const MutexLock lock(CaptureMutex());
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const absl::Status enqueued = enqueue(stream);
  cudaGraph_t captured = nullptr;
  // Ended even after an error, or the stream would stay in capture.
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const Graph graph(captured);
  if (!enqueued.ok()) return enqueued;
  SPARSEFW_CUDA_RETURN_IF_ERROR(ended);
  cudaGraphExec_t exec = nullptr;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&exec, graph.get(), 0));
  return GraphExec(exec);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_STREAM_H_
