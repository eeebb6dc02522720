// SparseGPT on the device.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/src/cuda/prune/inverse_factor.h"
#include "core/src/cuda/prune/prune.h"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/cuda/select/select_scores.h"
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
      SPARSEFW_ASSIGN_OR_RETURN(scratch_, DeviceBuffer<unsigned char>::Zeroed(
                                              SelectionBytes(layer_.rows, columns_), stream));
      SPARSEFW_ASSIGN_OR_RETURN(shared_bytes_, SharedBytesForRows());
    }
    for (int64_t first = 0; first < layer_.cols; first += columns_) {
      SPARSEFW_RETURN_IF_ERROR(PruneBlock(first, std::min(first + columns_, layer_.cols)));
    }
    return std::move(mask_);
  }

 private:
  SweepTile TileOf(int64_t first, int64_t end) {
    return {.rows = layer_.rows,
            .stride = layer_.stride,
            .first = first,
            .width = end - first,
            .weights = layer_.weights.data(),
            .factor = layer_.gram.data(),
            .group = pattern_.group,
            .keep = pattern_.keep,
            .mask = mask_.data(),
            .errors = errors_.data()};
  }

  absl::Status PruneBlock(int64_t first, int64_t end) {
    const bool in_tiles = ChosenInTiles(pattern_);
    if (!in_tiles) SPARSEFW_RETURN_IF_ERROR(Choose(first, end));
    for (int64_t begin = first; begin < end; begin += kTileColumns) {
      SweepTile tile = TileOf(begin, std::min(begin + kTileColumns, end));
      if (!in_tiles) tile.chosen = chosen_.data() + (begin - first) / 32;
      tile.chosen_words = StrideOf(end - first) / 32;
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSweepTile(tile, context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(UpdateLaterColumns(begin, begin + tile.width));
      if (++tiles_ % kTilesBetweenLooks == 0) {
        SPARSEFW_RETURN_IF_ERROR(CheckLimits(request_, context_));
      }
    }
    return absl::OkStatus();
  }

  // The bits of what is kept of the columns, in `chosen_`.
  absl::Status Choose(int64_t first, int64_t end) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchSweepScores(TileOf(first, end), scores_.data(), context_.stream()));
    Groups groups = {.group_cols = end - first, .groups_per_row = 1, .capacity = pattern_.keep};
    if (pattern_.kind == Kind::kPerRow) groups.capacity = KeptOf(1, first, end);
    if (pattern_.kind == Kind::kUnstructured) {
      groups.whole_matrix = true;
      groups.total_kept = KeptOf(layer_.rows, first, end);
    }
    const SelectionSpace space = {layer_.rows, end - first, scratch_.data(), shared_bytes_};
    return ToStatus(
        LaunchSelectLargest(space, scores_.data(), groups, chosen_.data(), context_.stream()));
  }

  int64_t KeptOf(int64_t rows, int64_t first, int64_t end) const {
    const int64_t pruned = sparsegpt::PrunedOf(rows * end, pattern_.sparsity) -
                           sparsegpt::PrunedOf(rows * first, pattern_.sparsity);
    return rows * (end - first) - pruned;
  }

  absl::Status UpdateLaterColumns(int64_t first, int64_t end) {
    return context_.Multiply(
        {.rows = layer_.rows,
         .cols = layer_.cols - end,
         .depth = end - first,
         .a = {errors_.data(), kTileColumns},
         .b = {layer_.gram.data() + first * layer_.stride + end, layer_.stride},
         .c = layer_.weights.data() + end,
         .c_stride = layer_.stride,
         .input = CUDA_R_64F,
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
  DeviceBuffer<unsigned char> scratch_;  // of the selection
  int64_t shared_bytes_ = 0;
};

// A dead input gets the mean of the others' diagonal and nothing beside it, as sparsegpt/damping.h
// says; its weights become 0.
absl::Status ReplaceDeadInputs(DeviceLayer<double>& layer, const std::vector<double>& diagonal,
                               const std::vector<int64_t>& dead, const ExecutionContext& context) {
  if (dead.empty()) return absl::OkStatus();
  const cudaStream_t stream = context.stream();
  const size_t row_bytes = static_cast<size_t>(layer.stride) * sizeof(double);
  std::vector<double> factors(diagonal.size(), 1.0);
  for (const int64_t column : dead) {
    factors[static_cast<size_t>(column)] = 0;
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(layer.gram.data() + column * layer.stride, 0, row_bytes, stream));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const auto values, context.Upload(factors));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScaleColumns(layer.gram.data(), values.data(), layer.cols,
                                                   layer.cols, layer.stride, stream));
  SPARSEFW_RETURN_IF_ERROR(UploadDiagonal(diagonal, layer, stream));
  return ToStatus(LaunchScaleColumns(layer.weights.data(), values.data(), layer.rows, layer.cols,
                                     layer.stride, stream));
}

// The layer's gram becomes U, its dead inputs 0; returns the damping.
absl::StatusOr<double> FactorizeGram(DeviceLayer<double>& layer, const PruneRequest& request,
                                     const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(std::vector<double> diagonal,
                            DownloadDiagonal(layer, context.stream()));
  const sparsegpt::LiveDiagonal live = sparsegpt::ReplaceDead(diagonal);
  SPARSEFW_RETURN_IF_ERROR(ReplaceDeadInputs(layer, diagonal, live.dead_columns, context));
  SPARSEFW_ASSIGN_OR_RETURN(const auto factor, InverseFactor::Create(layer.cols, context));
  // H = R R^T with R upper triangular is the Cholesky factor of H read backwards.
  const auto factorize =
      [&](double added) -> absl::StatusOr<std::optional<sparsegpt::FailedPivot>> {
    SPARSEFW_RETURN_IF_ERROR(CheckLimits(request, context));
    return factor->Factorize({layer.gram.data(), added, /*reversed=*/true});
  };
  SPARSEFW_ASSIGN_OR_RETURN(const double damping, sparsegpt::FindDamping(request.sparsegpt.damping,
                                                                         live.mean, factorize));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchShift(factor->inverse(), 0, /*reversed=*/true, layer.cols,
                                            layer.stride, layer.gram.data(), context.stream()));
  SPARSEFW_RETURN_IF_ERROR(CheckLimits(request, context));
  return damping;
}

}  // namespace

absl::StatusOr<PrunedWeights> PruneBySparseGpt(PruneInputs inputs, const PruneRequest& request,
                                               const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const double damping, FactorizeGram(inputs.layer, request, context));
  SPARSEFW_ASSIGN_OR_RETURN(const DeviceBuffer<BitWord> kept,
                            DeviceSweep(inputs.layer, inputs.pattern, request, context).Run());
  return DownloadPruned(inputs, inputs.layer.weights.data(), nullptr, kept.data(), damping,
                        context);
}

int64_t SparseGptDeviceBytes(int64_t rows, int64_t cols, const Pattern& pattern,
                             const SparseGptOptions& options) {
  const int64_t columns = ChoiceColumns(pattern, options.block, cols);
  const int64_t entries = rows * StrideOf(columns);
  const int64_t bits = rows * StrideOf(cols) / 8;
  const int64_t sweep =
      8 * rows * kTileColumns + 8 * entries + entries / 8 + SelectionBytes(rows, columns);
  const int64_t most =
      std::max({InverseFactor::Bytes(cols) + 64, bits + sweep, bits + 4 * rows * cols});
  return LayerBytes<double>(rows, cols) + most;
}

}  // namespace sparsefw::cuda
