// SparseGPT on the device.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/src/cuda/prune/alps_kernels.h"
#include "core/src/cuda/prune/factor_kernels.h"
#include "core/src/cuda/prune/inverse_factor.h"
#include "core/src/cuda/prune/prune.h"
#include "core/src/cuda/prune/sweep_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/sparsegpt/column_sweep.h"
#include "core/src/sparsegpt/damping.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kTilesBetweenLooks = 8;

using Kind = Pattern::Kind;

// Groups that lie within a tile are chosen by the kernel that prunes it.
bool ChosenInTiles(const Pattern& pattern) {
  return pattern.kind == Kind::kKeepOfGroup && pattern.group <= kTileColumns;
}

// Columns whose mask is chosen together, before the first of them is pruned.
int64_t ChoiceColumns(const Pattern& pattern, int64_t block, int64_t cols) {
  if (ChosenInTiles(pattern)) return sparsegpt::BlockColumns(pattern, kTileColumns, cols);
  if (pattern.kind == Kind::kKeepOfGroup) return pattern.group;
  return sparsegpt::BlockColumns(pattern, block, cols);
}

class DeviceSweep {
 public:
  // The layer's gram is U.
  DeviceSweep(DeviceLayer<double>& layer, const Pattern& pattern, const PruneRequest& request,
              const ExecutionContext& context)
      : layer_(layer),
        pattern_(pattern),
        request_(request),
        context_(context),
        columns_(ChoiceColumns(pattern, request.sparsegpt.block, layer.cols)) {}

  absl::StatusOr<DeviceBuffer<BitWord>> Run() {
    const cudaStream_t stream = context_.stream();
    SPARSEFW_ASSIGN_OR_RETURN(mask_,
                              DeviceBuffer<BitWord>::Zeroed(layer_.rows * layer_.words(), stream));
    SPARSEFW_ASSIGN_OR_RETURN(errors_,
                              DeviceBuffer<double>::Create(layer_.rows * kTileColumns, stream));
    if (!ChosenInTiles(pattern_)) {
      const int64_t entries = layer_.rows * StrideOf(columns_);
      SPARSEFW_ASSIGN_OR_RETURN(scores_, DeviceBuffer<double>::Create(entries, stream));
      SPARSEFW_ASSIGN_OR_RETURN(chosen_, DeviceBuffer<BitWord>::Create(entries / 32, stream));
      SPARSEFW_ASSIGN_OR_RETURN(selection_,
                                SelectionBuffers::Create(layer_.rows, columns_, stream));
    }
    for (int64_t first = 0; first < layer_.cols; first += columns_) {
      SPARSEFW_RETURN_IF_ERROR(PruneBlock(first, std::min(first + columns_, layer_.cols)));
    }
    return std::move(mask_);
  }

 private:
  absl::Status PruneBlock(int64_t first, int64_t end) {
    const bool in_tiles = ChosenInTiles(pattern_);
    if (!in_tiles) SPARSEFW_RETURN_IF_ERROR(Choose(first, end));
    const int64_t words = StrideOf(end - first) / 32;
    for (int64_t begin = first; begin < end; begin += kTileColumns) {
      const int64_t tile_end = std::min(begin + kTileColumns, end);
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          LaunchSweepTile({.rows = layer_.rows,
                           .stride = layer_.stride,
                           .first = begin,
                           .width = static_cast<int>(tile_end - begin),
                           .weights = layer_.weights.data(),
                           .factor = layer_.gram.data(),
                           .chosen = in_tiles ? nullptr : chosen_.data() + (begin - first) / 32,
                           .chosen_words = words,
                           .group = pattern_.group,
                           .keep = pattern_.keep,
                           .mask = mask_.data(),
                           .errors = errors_.data()},
                          context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(UpdateLaterColumns(begin, tile_end));
      if (++tiles_ % kTilesBetweenLooks == 0) {
        SPARSEFW_RETURN_IF_ERROR(CheckLimits(request_, context_));
      }
    }
    return absl::OkStatus();
  }

  // The bits of what is kept of the columns, in `chosen_`.
  absl::Status Choose(int64_t first, int64_t end) {
    const int64_t width = end - first;
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSweepScores({.rows = layer_.rows,
                                                     .stride = layer_.stride,
                                                     .first = first,
                                                     .width = width,
                                                     .weights = layer_.weights.data(),
                                                     .factor = layer_.gram.data(),
                                                     .scores = scores_.data()},
                                                    context_.stream()));
    Groups groups = {.group_cols = width, .groups_per_row = 1, .capacity = pattern_.keep};
    if (pattern_.kind == Kind::kPerRow) groups.capacity = KeptOf(1, first, end);
    groups.total_kept = layer_.rows * groups.capacity;
    if (pattern_.kind == Kind::kUnstructured) {
      groups.whole_matrix = true;
      groups.total_kept = groups.capacity = KeptOf(layer_.rows, first, end);
    }
    return ToStatus(LaunchSelectLargest(selection_.Of(scores_.data(), layer_.rows, width), groups,
                                        chosen_.data(), context_.stream()));
  }

  int64_t KeptOf(int64_t rows, int64_t first, int64_t end) const {
    const int64_t pruned = sparsegpt::PrunedOf(rows * end, pattern_.sparsity) -
                           sparsegpt::PrunedOf(rows * first, pattern_.sparsity);
    return rows * (end - first) - pruned;
  }

  absl::Status UpdateLaterColumns(int64_t first, int64_t end) {
    return context_.product().Multiply({.rows = layer_.rows,
                                        .cols = layer_.cols - end,
                                        .depth = end - first,
                                        .a = errors_.data(),
                                        .a_stride = kTileColumns,
                                        .b = layer_.gram.data() + first * layer_.stride + end,
                                        .b_stride = layer_.stride,
                                        .c = layer_.weights.data() + end,
                                        .c_stride = layer_.stride,
                                        .input = CUDA_R_64F,
                                        .output = CUDA_R_64F,
                                        .compute = CUBLAS_COMPUTE_64F,
                                        .alpha = -1,
                                        .beta = 1});
  }

  DeviceLayer<double>& layer_;
  const Pattern pattern_;
  const PruneRequest& request_;
  const ExecutionContext& context_;
  const int64_t columns_;
  int64_t tiles_ = 0;
  DeviceBuffer<BitWord> mask_;
  DeviceBuffer<double> errors_;
  DeviceBuffer<double> scores_;
  DeviceBuffer<BitWord> chosen_;
  SelectionBuffers selection_;
};

// The layer's gram becomes U and its dead columns 0; returns the damping.
absl::StatusOr<double> FactorizeGram(DeviceLayer<double>& layer, const PruneRequest& request,
                                     const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<double> diagonal,
                            DownloadDiagonal(layer.gram, layer.cols, context));
  const sparsegpt::LiveDiagonal live = sparsegpt::ReplaceDead(diagonal);
  SPARSEFW_ASSIGN_OR_RETURN(const auto on_device, UploadValues(diagonal, context));
  SPARSEFW_ASSIGN_OR_RETURN(InverseFactor factor, InverseFactor::Create(layer.cols, context));
  // H = R R^T with R upper triangular is the Cholesky factor of H read backwards.
  const auto factorize =
      [&](double added) -> absl::StatusOr<std::optional<sparsegpt::FailedPivot>> {
    SPARSEFW_RETURN_IF_ERROR(CheckLimits(request, context));
    return factor.Factorize({layer.gram.data(), on_device.data(), added, /*reversed=*/true});
  };
  SPARSEFW_ASSIGN_OR_RETURN(const double damping, sparsegpt::FindDamping(request.sparsegpt.damping,
                                                                         live.mean, factorize));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchReversed(factor.inverse(), layer.cols, layer.stride,
                                               layer.gram.data(), context.stream()));
  if (!live.dead_columns.empty()) {
    std::vector<double> factors(static_cast<size_t>(layer.cols), 1.0);
    for (const int64_t column : live.dead_columns) factors[static_cast<size_t>(column)] = 0;
    SPARSEFW_ASSIGN_OR_RETURN(const auto zeros, UploadValues(factors, context));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScaleColumns(layer.weights.data(), zeros.data(), layer.rows,
                                                     layer.cols, layer.stride, context.stream()));
  }
  SPARSEFW_RETURN_IF_ERROR(CheckLimits(request, context));
  return damping;
}

}  // namespace

absl::StatusOr<PrunedWeights> PruneBySparseGpt(PruneInputs inputs, const PruneRequest& request,
                                               const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const double damping, FactorizeGram(inputs.layer, request, context));
  SPARSEFW_ASSIGN_OR_RETURN(const DeviceBuffer<BitWord> kept,
                            DeviceSweep(inputs.layer, inputs.pattern, request, context).Run());
  return DownloadPruned(inputs, inputs.layer.weights, nullptr, kept, damping, context);
}

int64_t SparseGptDeviceBytes(int64_t rows, int64_t cols, const SparseGptOptions& options) {
  const int64_t columns = std::min(options.block, cols);
  const int64_t entries = rows * StrideOf(columns);
  const int64_t bits = rows * StrideOf(cols) / 8;
  const int64_t sweep =
      8 * rows * kTileColumns + 8 * entries + entries / 8 + SelectionBuffers::Bytes(rows, columns);
  const int64_t most =
      std::max({InverseFactor::Bytes(cols) + 2 * 8 * cols, bits + sweep, bits + 4 * rows * cols});
  return LayerBytes<double>(rows, cols) + most;
}

}  // namespace sparsefw::cuda
