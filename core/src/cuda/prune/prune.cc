#include "core/src/cuda/prune/prune.h"

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/src/cuda/prune/alps_kernels.h"
#include "core/src/cuda/prune/factor_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/linalg/finite.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::StatusOr<SelectionBuffers> SelectionBuffers::Create(int64_t rows, int64_t cols,
                                                          cudaStream_t stream) {
  SelectionBuffers result;
  const int64_t stride = StrideOf(cols);
  SPARSEFW_ASSIGN_OR_RETURN(result.none_,
                            DeviceBuffer<BitWord>::Zeroed(rows * stride / 32, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.selection_, DeviceBuffer<Selection>::Zeroed(1, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.counts_,
                            DeviceBuffer<unsigned>::Zeroed(SelectionBins() + 1, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.partial_,
                            DeviceBuffer<double>::Create(SelectionPartials(rows, stride), stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.shared_bytes_, SharedBytesForRows());
  return result;
}

int64_t SelectionBuffers::Bytes(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  return rows * stride / 8 + int64_t{sizeof(Selection)} + 4 * (SelectionBins() + 1) +
         8 * SelectionPartials(rows, stride);
}

ScoreMatrix SelectionBuffers::Of(const double* scores, int64_t rows, int64_t cols) const {
  const auto own = [](const auto& buffer) {
    return const_cast<std::remove_cvref_t<decltype(buffer)>&>(buffer).data();
  };
  return {.rows = rows,
          .cols = cols,
          .stride = StrideOf(cols),
          .scores = scores,
          .none = none_.data(),
          .selection = own(selection_),
          .histogram = own(counts_),
          .ticket = own(counts_) + SelectionBins(),
          .partial = own(partial_),
          .shared_bytes = shared_bytes_};
}

absl::Status CheckLimits(const PruneRequest& request, const ExecutionContext& context) {
  SPARSEFW_RETURN_IF_ERROR(context.Await());
  if (request.out_of_time && request.out_of_time()) return absl::CancelledError("out of time");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> DownloadDiagonal(const DeviceBuffer<double>& matrix,
                                                     int64_t size,
                                                     const ExecutionContext& context) {
  const cudaStream_t stream = context.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto diagonal, DeviceBuffer<double>::Create(size, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchDiagonal(matrix.data(), size, StrideOf(size), diagonal.data(), stream));
  std::vector<double> values(static_cast<size_t>(size));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(values.data(), diagonal.data(),
                                                values.size() * sizeof(double),
                                                cudaMemcpyDeviceToHost, stream));
  SPARSEFW_RETURN_IF_ERROR(context.Await());
  return values;
}

absl::StatusOr<DeviceBuffer<double>> UploadValues(const std::vector<double>& values,
                                                  const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(auto buffer,
                            DeviceBuffer<double>::Create(std::ssize(values), context.stream()));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer.data(), values.data(),
                                                values.size() * sizeof(double),
                                                cudaMemcpyHostToDevice, context.stream()));
  SPARSEFW_RETURN_IF_ERROR(context.Await());  // `values` may go
  return buffer;
}

absl::StatusOr<PrunedWeights> DownloadPruned(const PruneInputs& inputs,
                                             const DeviceBuffer<double>& weights,
                                             const double* norms, const DeviceBuffer<BitWord>& kept,
                                             double damping, const ExecutionContext& context) {
  const DeviceLayer<double>& layer = inputs.layer;
  const cudaStream_t stream = context.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto rounded,
                            DeviceBuffer<float>::Create(layer.rows * layer.cols, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchNewWeights({.rows = layer.rows,
                        .cols = layer.cols,
                        .stride = layer.stride,
                        .weights = weights.data(),
                        .norms = norms,
                        .kept = kept.data(),
                        .factor = Scale{-inputs.scale.weights_exponent, 0}.weights_factor(),
                        .dtype = inputs.dtype,
                        .out = rounded.data()},
                       stream));
  PrunedWeights result = {Mask(), Matrix<float>(layer.rows, layer.cols), damping};
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(
      result.weights.data(), rounded.data(),
      static_cast<size_t>(result.weights.size()) * sizeof(float), cudaMemcpyDeviceToHost, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.mask, DownloadMask(kept, layer.rows, layer.cols, stream));
  const std::optional<NonFinite> found = FindNonFinite(result.weights.view());
  if (!found) return result;
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; that at [%d, %d] does not",
                 DTypeName(inputs.dtype), found->row, found->col);
}

}  // namespace sparsefw::cuda
