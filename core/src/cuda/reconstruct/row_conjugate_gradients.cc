#include "core/src/cuda/reconstruct/row_conjugate_gradients.h"

#include <iterator>
#include <numeric>
#include <utility>

#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

template <typename Real>
absl::StatusOr<RowConjugateGradients<Real>> RowConjugateGradients<Real>::Create(
    const DeviceLayer<Real>& layer, int64_t rows, const ExecutionContext& context) {
  const cudaStream_t stream = context.stream();
  const int64_t size = rows * layer.stride;
  RowConjugateGradients result(layer, context);
  SPARSEFW_ASSIGN_OR_RETURN(result.preconditioner_,
                            DeviceBuffer<Real>::Create(layer.stride, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.solution_, DeviceBuffer<Real>::Create(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.residual_, DeviceBuffer<Real>::Create(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.direction_, DeviceBuffer<Real>::Create(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.product_, DeviceBuffer<Real>::Create(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(
      auto symmetric,
      SymmetricProduct<Real>::Create(layer, rows, SymmetricProduct<Real>::Use::kRows,
                                     ProductPrecision::kFloat32, context.product(), stream));
  result.symmetric_.emplace(std::move(symmetric));
  SPARSEFW_ASSIGN_OR_RETURN(result.rows_, DeviceBuffer<GradientRow>::Create(rows, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.active_, DeviceBuffer<int>::Create(rows, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.from_, DeviceBuffer<int>::Create(rows, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.unfinished_, DeviceBuffer<int>::Create(1, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchPreconditioner(layer.gram.data(), layer.cols, layer.stride,
                                                     result.preconditioner_.data(), stream));
  return result;
}

template <typename Real>
GradientPanel<Real> RowConjugateGradients<Real>::Panel(const BitWord* kept) {
  return {.cols = layer_.cols,
          .stride = layer_.stride,
          .preconditioner = preconditioner_.data(),
          .kept = kept,
          .solution = solution_.data(),
          .residual = residual_.data(),
          .direction = direction_.data(),
          .product = product_.data(),
          .product_scale = symmetric_->scale(),
          .rows = rows_.data(),
          .active = active_.data(),
          .solved_before = solved_before_};
}

template <typename Real>
absl::Status RowConjugateGradients<Real>::Solve(const BitWord* kept, int64_t rows,
                                                const double* residual, const double* losses,
                                                const std::function<bool()>& out_of_time) {
  positions_.resize(static_cast<size_t>(rows));
  std::iota(positions_.begin(), positions_.end(), 0);
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(active_.data(), positions_.data(), std::ssize(positions_),
                                       cudaMemcpyHostToDevice, context_.stream()));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaMemsetAsync(unfinished_.data(), 0, sizeof(int), context_.stream()));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBeginGradients(Panel(kept), rows, residual, losses,
                                                     unfinished_.data(), context_.stream()));
  SPARSEFW_ASSIGN_OR_RETURN(int64_t unfinished, CountUnfinished());
  for (int64_t iteration = 0; iteration < kReconstructIterations && unfinished > 0; ++iteration) {
    if (out_of_time && out_of_time()) break;
    if (2 * unfinished <= std::ssize(positions_)) {
      SPARSEFW_RETURN_IF_ERROR(LeaveOutDone(rows));
    }
    const int64_t count = std::ssize(positions_);
    SPARSEFW_RETURN_IF_ERROR(symmetric_->MultiplyRows(count, direction_.data(), product_.data()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(unfinished_.data(), 0, sizeof(int), context_.stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchGradientStep(Panel(kept), count, iteration, unfinished_.data(), context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(unfinished, CountUnfinished());
  }
  return absl::OkStatus();
}

// Waits for the stream.
template <typename Real>
absl::StatusOr<int64_t> RowConjugateGradients<Real>::CountUnfinished() {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<int> count, context_.Download(unfinished_));
  return count.front();
}

// Directions stay in the order of the rows, without gaps. They move into the
// memory of the product, which is about to be computed anew.
template <typename Real>
absl::Status RowConjugateGradients<Real>::LeaveOutDone(int64_t rows) {
  std::vector<GradientRow> states(static_cast<size_t>(rows));
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(states.data(), rows_.data(), rows, cudaMemcpyDeviceToHost, context_.stream()));
  std::vector<int> from;
  std::vector<int> stay;
  for (size_t position = 0; position < positions_.size(); ++position) {
    const int row = positions_[position];
    if (states[static_cast<size_t>(row)].done != 0) continue;
    from.push_back(static_cast<int>(position));
    stay.push_back(row);
  }
  positions_ = std::move(stay);
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(active_.data(), positions_.data(), std::ssize(positions_),
                                       cudaMemcpyHostToDevice, context_.stream()));
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(from_.data(), from.data(), std::ssize(from),
                                       cudaMemcpyHostToDevice, context_.stream()));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchGather(direction_.data(), from_.data(), std::ssize(from),
                                             layer_.stride, product_.data(), context_.stream()));
  std::swap(direction_, product_);
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(context_.stream()));  // `from` goes
  return absl::OkStatus();
}

template class RowConjugateGradients<float>;
template class RowConjugateGradients<double>;

}  // namespace sparsefw::cuda
