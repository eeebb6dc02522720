#include "core/src/cuda/prune/prune.h"

#include <optional>

#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/linalg/finite.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::Status CheckLimits(const PruneRequest& request, const ExecutionContext& context) {
  SPARSEFW_RETURN_IF_ERROR(context.Await());
  if (request.out_of_time && request.out_of_time()) return absl::CancelledError("out of time");
  return absl::OkStatus();
}

absl::StatusOr<PrunedWeights> DownloadPruned(const PruneInputs& inputs, const double* weights,
                                             const double* norms, const BitWord* kept,
                                             double damping, const ExecutionContext& context) {
  const DeviceLayer<double>& layer = inputs.layer;
  const cudaStream_t stream = context.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto rounded,
                            DeviceBuffer<float>::Create(layer.rows * layer.cols, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchNewWeights({.rows = layer.rows,
                        .cols = layer.cols,
                        .stride = layer.stride,
                        .weights = weights,
                        .norms = norms,
                        .kept = kept,
                        .factor = Scale{-inputs.scale.weights_exponent, 0}.weights_factor(),
                        .dtype = inputs.dtype,
                        .out = rounded.data()},
                       stream));
  PrunedWeights result = {Mask(), Matrix<float>(layer.rows, layer.cols), damping};
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(result.weights.data(), rounded.data(), rounded.size(),
                                       cudaMemcpyDeviceToHost, stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.mask, DownloadMask(kept, layer.rows, layer.cols, stream));
  const std::optional<NonFinite> found = FindNonFinite(result.weights.view());
  if (!found) return result;
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; that at [%d, %d] does not",
                 DTypeName(inputs.dtype), found->row, found->col);
}

}  // namespace sparsefw::cuda
