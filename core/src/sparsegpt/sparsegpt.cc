#include "core/src/sparsegpt/sparsegpt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/linalg/finite.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/reconstruct/rounded_value.h"
#include "core/src/sparsegpt/column_sweep.h"
#include "core/src/sparsegpt/damping.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace sparsegpt {
namespace {

using Layer = ScaledLayer<double>;

absl::Status ZeroColumns(const std::vector<int64_t>& columns, Layer& layer,
                         const ParallelContext& context) {
  if (columns.empty()) return absl::OkStatus();
  return context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (const int64_t column : columns) layer.weights(row, column) = 0;
  });
}

// The weights in the units and values of the given dtype.
absl::StatusOr<Matrix<float>> NewWeights(const Layer& layer, const Scale& scale, DType dtype,
                                         const ParallelContext& context) {
  Matrix<float> result(layer.rows, layer.cols);
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (int64_t col = 0; col < layer.cols; ++col) {
      const double value = std::ldexp(layer.weights(row, col), -scale.weights_exponent);
      result(row, col) = RoundedTo(dtype, value);
    }
  }));
  const std::optional<NonFinite> found = FindNonFinite(result.view());
  if (!found) return result;
  const double value = std::ldexp(layer.weights(found->row, found->col), -scale.weights_exponent);
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; got %g at [%d, %d]",
                 DTypeName(dtype), value, found->row, found->col);
}

}  // namespace

absl::StatusOr<PrunedWeights> Prune(const Problem& problem, const SparseGptOptions& options,
                                    const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale, ChooseScale(problem.weights, problem.gram, context));
  SPARSEFW_ASSIGN_OR_RETURN(Layer layer,
                            LoadScaled<double>(problem.weights, problem.gram, scale, context));
  SPARSEFW_ASSIGN_OR_RETURN(const DampedFactor factor,
                            FactorizeDamped(layer.gram, layer.cols, options.damping, context));
  SPARSEFW_RETURN_IF_ERROR(ZeroColumns(factor.dead_columns, layer, context));

  PrunedWeights result{Mask(layer.rows, layer.cols), Matrix<float>(), factor.damping};
  ColumnSweep sweep({layer.weights, layer.gram, layer.rows, layer.cols}, problem.pattern,
                    options.block, context);
  SPARSEFW_RETURN_IF_ERROR(sweep.Run(result.mask));
  SPARSEFW_ASSIGN_OR_RETURN(result.weights,
                            NewWeights(layer, scale, problem.weights.dtype(), context));
  return result;
}

}  // namespace sparsegpt

int64_t SparseGptBytes(int64_t rows, int64_t cols, const Pattern& pattern,
                       const SparseGptOptions& options) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t block = sparsegpt::BlockColumns(pattern, options.block, cols);
  const int64_t layer = 8 * stride * (rows + cols);
  const int64_t factor = 8 * (4 * cols + 128) * 128;
  const int64_t sweep = (8 + 8 + 1) * rows * block + 8 * block * block;
  const int64_t weights = 4 * rows * cols;
  const int64_t masks = 4 * rows * ((cols + 7) / 8);
  return layer + factor + sweep + weights + masks;
}

}  // namespace sparsefw
