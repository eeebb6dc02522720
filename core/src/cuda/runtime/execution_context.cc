#include "core/src/cuda/runtime/execution_context.h"

#include <utility>

#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_pool.h"
#include "core/src/cuda/runtime/use_device.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

void Destroy(Lane lane) {
  const absl::StatusOr<const CublasLibrary*> library = CublasLibrary::Open();
  const MutexLock lock(CaptureMutex());
  if (library.ok()) static_cast<void>((*library)->destroy(lane.handle));
}

absl::StatusOr<Lane> MakeLane() {
  SPARSEFW_ASSIGN_OR_RETURN(const CublasLibrary* library, CublasLibrary::Open());
  Lane lane;
  SPARSEFW_ASSIGN_OR_RETURN(lane.stream, CreateStream());
  const auto create = [&] {
    const MutexLock lock(CaptureMutex());
    return library->create(&lane.handle);
  };
  cublasStatus_t created = create();
  if (created == CUBLAS_STATUS_ALLOC_FAILED) {
    SPARSEFW_RETURN_IF_ERROR(TrimMemoryPool(lane.stream.get()));
    created = create();
  }
  SPARSEFW_RETURN_IF_ERROR(ToStatus(created, "cublasCreate"));
  const absl::Status bound =
      ToStatus(library->set_stream(lane.handle, lane.stream.get()), "cublasSetStream");
  if (bound.ok()) return lane;
  Destroy(std::move(lane));
  return bound;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutionContext>> ExecutionContext::Open(int device,
                                                                         int64_t workspace_bytes,
                                                                         const StopSignal* stop) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device));
  SPARSEFW_ASSIGN_OR_RETURN(const CublasLibrary* library, CublasLibrary::Open());
  std::optional<Lane> lane = PoolOf<Lane>(device).Take();
  if (!lane.has_value()) {
    SPARSEFW_ASSIGN_OR_RETURN(lane, MakeLane());
  }
  std::unique_ptr<ExecutionContext> context(new ExecutionContext(device, *std::move(lane), stop));
  SPARSEFW_ASSIGN_OR_RETURN(
      context->workspace_, DeviceBuffer<unsigned char>::Create(workspace_bytes, context->stream()));
  // After the stream was set, which takes the workspace away.
  SPARSEFW_CUDA_RETURN_IF_ERROR(library->set_workspace(
      context->lane_.handle, context->workspace_.data(), static_cast<size_t>(workspace_bytes)));
  context->product_.emplace(*library, context->lane_.handle);
  return context;
}

// The state of a failed stream is unknown, so that nobody else gets it.
ExecutionContext::~ExecutionContext() {
  workspace_.Reset();
  if (cudaStreamSynchronize(stream()) == cudaSuccess) {
    PoolOf<Lane>(device_).Give(std::move(lane_));
  } else {
    Destroy(std::move(lane_));
  }
}

absl::Status ExecutionContext::CheckStop() const {
  return stopped() ? absl::CancelledError("the engine was told to stop") : absl::OkStatus();
}

absl::Status ExecutionContext::Await() const {
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream()));
  return CheckStop();
}

}  // namespace sparsefw::cuda
