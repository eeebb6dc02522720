#include "core/src/cuda/runtime/execution_context.h"

#include <optional>
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
  SPARSEFW_RETURN_IF_ERROR(TrimAndRetry(lane.stream.get(), [&] {
    const MutexLock lock(CaptureMutex());
    return ToStatus(library->create(&lane.handle), "cublasCreate");
  }));
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
  std::unique_ptr<ExecutionContext> context(
      new ExecutionContext(device, *library, *std::move(lane), stop));
  SPARSEFW_ASSIGN_OR_RETURN(
      context->workspace_, DeviceBuffer<unsigned char>::Create(workspace_bytes, context->stream()));
  // After the stream was set, which takes the workspace away.
  SPARSEFW_CUDA_RETURN_IF_ERROR(library->set_workspace(
      context->lane_.handle, context->workspace_.data(), static_cast<size_t>(workspace_bytes)));
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

// cuBLAS is column-major: C^T = B^T A^T there is C = A B by rows.
absl::Status ExecutionContext::Multiply(const ProductArgs& args) const {
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  const float alpha32 = static_cast<float>(args.alpha);
  const float beta32 = static_cast<float>(args.beta);
  const bool wide = args.input == CUDA_R_64F;
  const void* alpha = wide ? static_cast<const void*>(&args.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&args.beta) : &beta32;
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  SPARSEFW_CUDA_RETURN_IF_ERROR(cublas_.gemm_ex(
      lane_.handle, operation(args.b.transposed), operation(args.a.transposed),
      static_cast<int>(args.cols), static_cast<int>(args.rows), static_cast<int>(args.depth), alpha,
      args.b.data, args.input, static_cast<int>(args.b.stride), args.a.data, args.input,
      static_cast<int>(args.a.stride), beta, args.c, wide ? CUDA_R_64F : CUDA_R_32F,
      static_cast<int>(args.c_stride), wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
      CUBLAS_GEMM_DEFAULT));
  return absl::OkStatus();
}

// By columns it is X^T := X^T L^-T, and L^T is upper triangular.
absl::Status ExecutionContext::SolveLower(int64_t size, int64_t cols, const double* lower,
                                          int64_t lower_stride, double* x, int64_t x_stride) const {
  const double one = 1;
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cublas_.dtrsm(lane_.handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                    CUBLAS_DIAG_NON_UNIT, static_cast<int>(cols), static_cast<int>(size), &one,
                    lower, static_cast<int>(lower_stride), x, static_cast<int>(x_stride)));
  return absl::OkStatus();
}

}  // namespace sparsefw::cuda
