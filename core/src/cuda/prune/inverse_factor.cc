#include "core/src/cuda/prune/inverse_factor.h"

#include <algorithm>
#include <vector>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

InverseFactor::InverseFactor(int64_t size, const ExecutionContext& context)
    : size_(size), stride_(StrideOf(size)), context_(context) {}

InverseFactor::~InverseFactor() {
  // Handles are never destroyed: that waits for the whole device.
  if (solver_ != nullptr) PoolOf<CusolverHandle>(device_).Give(solver_);
}

absl::StatusOr<std::unique_ptr<InverseFactor>> InverseFactor::Create(
    int64_t size, const ExecutionContext& context) {
  std::unique_ptr<InverseFactor> result(new InverseFactor(size, context));
  SPARSEFW_RETURN_IF_ERROR(result->Open());
  return result;
}

absl::Status InverseFactor::Open() {
  const cudaStream_t stream = context_.stream();
  SPARSEFW_ASSIGN_OR_RETURN(library_, CusolverLibrary::Open());
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device_));
  solver_ = PoolOf<CusolverHandle>(device_).Take().value_or(nullptr);
  if (solver_ == nullptr) {
    // It takes memory of its own, which our pool may have kept.
    SPARSEFW_RETURN_IF_ERROR(TrimMemoryPool(stream));
    const MutexLock lock(CaptureMutex());
    SPARSEFW_CUDA_RETURN_IF_ERROR(library_->create(&solver_));
  }
  SPARSEFW_CUDA_RETURN_IF_ERROR(library_->set_stream(solver_, stream));
  const int64_t elements = size_ * stride_;
  SPARSEFW_ASSIGN_OR_RETURN(factor_, DeviceBuffer<double>::Create(elements, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      library_->potrf_size(solver_, CUBLAS_FILL_MODE_UPPER, static_cast<int>(size_), factor_.data(),
                           static_cast<int>(stride_), &workspace_elements_));
  SPARSEFW_ASSIGN_OR_RETURN(
      inverse_,
      DeviceBuffer<double>::Create(std::max<int64_t>(elements, workspace_elements_), stream));
  SPARSEFW_ASSIGN_OR_RETURN(info_, DeviceBuffer<int>::Create(1, stream));
  return absl::OkStatus();
}

int64_t InverseFactor::Bytes(int64_t size) { return 2 * 8 * size * StrideOf(size); }

// cuSOLVER's upper triangle by columns is the lower one by rows.
absl::StatusOr<std::optional<sparsegpt::FailedPivot>> InverseFactor::Factorize(
    const ShiftedMatrix& h) {
  const cudaStream_t stream = context_.stream();
  // cuSOLVER may take memory for itself, which our pool may keep.
  SPARSEFW_RETURN_IF_ERROR(TrimAndRetry(stream, [&]() -> absl::Status {
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchShift(h.matrix, h.added, h.reversed, size_, stride_, factor_.data(), stream));
    const MutexLock lock(CaptureMutex());
    return ToStatus(library_->potrf(solver_, CUBLAS_FILL_MODE_UPPER, static_cast<int>(size_),
                                    factor_.data(), static_cast<int>(stride_), inverse_.data(),
                                    workspace_elements_, info_.data()),
                    "cusolverDnDpotrf");
  }));
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<sparsegpt::FailedPivot> failed, FindFailedPivot(h));
  if (failed) return failed;
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchShift(nullptr, 1, false, size_, stride_, inverse_.data(), stream));
  SPARSEFW_RETURN_IF_ERROR(
      context_.SolveLower(size_, size_, factor_.data(), stride_, inverse_.data(), stride_));
  return std::nullopt;
}

// The first pivot that is too small, or the one at which cuSOLVER ended.
absl::StatusOr<std::optional<sparsegpt::FailedPivot>> InverseFactor::FindFailedPivot(
    const ShiftedMatrix& h) {
  const cudaStream_t stream = context_.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto found, DeviceBuffer<SmallPivot>::Create(1, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchFindSmallPivot(factor_.data(), h.matrix, h.added, h.reversed,
                                                     size_, stride_, info_.data(), found.data(),
                                                     stream));
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<SmallPivot> pivots, context_.Download(found));
  const SmallPivot& pivot = pivots.front();
  if (pivot.place >= size_) return std::nullopt;
  const int64_t column = h.reversed ? size_ - 1 - pivot.place : pivot.place;
  return sparsegpt::FailedPivot{column, pivot.pivot, pivot.diagonal};
}

absl::Status InverseFactor::FormInverseOfMatrix() {
  return context_.Multiply({.rows = size_,
                            .cols = size_,
                            .depth = size_,
                            .a = {inverse_.data(), stride_, /*transposed=*/true},
                            .b = {inverse_.data(), stride_},
                            .c = factor_.data(),
                            .c_stride = stride_,
                            .input = CUDA_R_64F});
}

}  // namespace sparsefw::cuda
