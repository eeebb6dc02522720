#include "core/src/cuda/prune/inverse_factor.h"

#include <algorithm>
#include <utility>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/prune/factor_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// The type that the pool of a device is found by. Handles are never destroyed: that would wait for
// the whole device.
struct Solver {
  CusolverHandle handle = nullptr;
};

absl::StatusOr<CusolverHandle> TakeSolver(int device, const CusolverLibrary& library,
                                          cudaStream_t stream) {
  std::optional<Solver> solver = PoolOf<Solver>(device).Take();
  if (!solver) {
    solver.emplace();
    const MutexLock lock(CaptureMutex());
    SPARSEFW_RETURN_IF_ERROR(ToStatus(library.create(&solver->handle), "cusolverDnCreate"));
  }
  const absl::Status bound =
      ToStatus(library.set_stream(solver->handle, stream), "cusolverDnSetStream");
  if (bound.ok()) return solver->handle;
  return bound;
}

}  // namespace

InverseFactor::InverseFactor(int64_t size, const ExecutionContext& context)
    : size_(size), stride_(StrideOf(size)), context_(context) {}

InverseFactor::InverseFactor(InverseFactor&& other) noexcept
    : size_(other.size_),
      stride_(other.stride_),
      context_(other.context_),
      solver_(std::exchange(other.solver_, nullptr)),
      device_(other.device_),
      factor_(std::move(other.factor_)),
      inverse_(std::move(other.inverse_)),
      workspace_elements_(other.workspace_elements_),
      info_(std::move(other.info_)) {}

InverseFactor::~InverseFactor() {
  if (solver_ != nullptr) PoolOf<Solver>(device_).Give({solver_});
}

absl::StatusOr<InverseFactor> InverseFactor::Create(int64_t size, const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const CusolverLibrary* library, CusolverLibrary::Open());
  InverseFactor result(size, context);
  const cudaStream_t stream = context.stream();
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&result.device_));
  SPARSEFW_ASSIGN_OR_RETURN(result.solver_, TakeSolver(result.device_, *library, stream));
  const int64_t elements = size * result.stride_;
  // Its padding stays 0.
  SPARSEFW_ASSIGN_OR_RETURN(result.factor_, DeviceBuffer<double>::Zeroed(elements, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(library->potrf_size(
      result.solver_, CUBLAS_FILL_MODE_UPPER, static_cast<int>(size), result.factor_.data(),
      static_cast<int>(result.stride_), &result.workspace_elements_));
  SPARSEFW_ASSIGN_OR_RETURN(result.inverse_,
                            DeviceBuffer<double>::Create(
                                std::max<int64_t>(elements, result.workspace_elements_), stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.info_, DeviceBuffer<int>::Zeroed(1, stream));
  return result;
}

int64_t InverseFactor::Bytes(int64_t size) { return 2 * 8 * size * StrideOf(size); }

// cuSOLVER's upper triangle by columns is the lower one by rows.
absl::StatusOr<std::optional<sparsegpt::FailedPivot>> InverseFactor::Factorize(
    const ShiftedMatrix& h) {
  SPARSEFW_ASSIGN_OR_RETURN(const CusolverLibrary* library, CusolverLibrary::Open());
  const cudaStream_t stream = context_.stream();
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchShifted(h.matrix, h.diagonal, h.added, h.reversed, size_,
                                              stride_, factor_.data(), stream));
  {
    const MutexLock lock(CaptureMutex());  // it may take memory for itself
    SPARSEFW_CUDA_RETURN_IF_ERROR(library->potrf(
        solver_, CUBLAS_FILL_MODE_UPPER, static_cast<int>(size_), factor_.data(),
        static_cast<int>(stride_), inverse_.data(), workspace_elements_, info_.data()));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<sparsegpt::FailedPivot> failed, FindFailedPivot(h));
  if (failed) return failed;
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchIdentity(size_, stride_, inverse_.data(), stream));
  SPARSEFW_RETURN_IF_ERROR(context_.product().SolveLower(size_, size_, factor_.data(), stride_,
                                                         inverse_.data(), stride_));
  return std::nullopt;
}

// The first pivot that is too small, or the one at which cuSOLVER ended.
absl::StatusOr<std::optional<sparsegpt::FailedPivot>> InverseFactor::FindFailedPivot(
    const ShiftedMatrix& h) {
  const cudaStream_t stream = context_.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto found, DeviceBuffer<SmallPivot>::Create(1, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchFindSmallPivot(factor_.data(), h.diagonal, h.added,
                                                     h.reversed, size_, stride_, info_.data(),
                                                     found.data(), stream));
  SmallPivot pivot = {};
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&pivot, found.data(), sizeof(pivot), cudaMemcpyDeviceToHost, stream));
  SPARSEFW_RETURN_IF_ERROR(context_.Await());
  if (pivot.place >= size_) return std::nullopt;
  const int64_t column = h.reversed ? size_ - 1 - pivot.place : pivot.place;
  return sparsegpt::FailedPivot{column, pivot.pivot, pivot.diagonal};
}

absl::Status InverseFactor::FormInverseOfMatrix() {
  return context_.product().Multiply({.rows = size_,
                                      .cols = size_,
                                      .depth = size_,
                                      .a = inverse_.data(),
                                      .a_stride = stride_,
                                      .a_transposed = true,
                                      .b = inverse_.data(),
                                      .b_stride = stride_,
                                      .c = factor_.data(),
                                      .c_stride = stride_,
                                      .input = CUDA_R_64F,
                                      .output = CUDA_R_64F,
                                      .compute = CUBLAS_COMPUTE_64F});
}

}  // namespace sparsefw::cuda
