#include "core/src/alps/alps.h"

#include <cmath>
#include <optional>
#include <vector>

#include "core/src/alps/alternation.h"
#include "core/src/linalg/finite.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/reconstruct/rounded_value.h"
#include "sparsefw/alps.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {
namespace alps {
namespace {

using Layer = ScaledLayer<double>;

// Adds the damping, then makes the diagonal 1; returns s.
std::vector<double> Normalise(Layer& layer) {
  double mean = 0;
  for (int64_t j = 0; j < layer.cols; ++j) {
    mean += layer.gram(j, j) / static_cast<double>(layer.cols);
  }
  std::vector<double> norms;
  for (int64_t j = 0; j < layer.cols; ++j) {
    layer.gram(j, j) += kDamping * mean;
    norms.push_back(layer.gram(j, j) > 0 ? std::sqrt(layer.gram(j, j)) : 1);
  }
  for (int64_t i = 0; i < layer.cols; ++i) {
    for (int64_t j = 0; j < layer.cols; ++j) {
      layer.gram(i, j) /= norms[static_cast<size_t>(i)] * norms[static_cast<size_t>(j)];
    }
  }
  for (int64_t row = 0; row < layer.rows; ++row) {
    for (int64_t j = 0; j < layer.cols; ++j) layer.weights(row, j) *= norms[static_cast<size_t>(j)];
  }
  return norms;
}

}  // namespace

absl::StatusOr<PrunedLayer> Prune(const Problem& problem, const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale, ChooseScale(problem.weights, problem.gram, context));
  SPARSEFW_ASSIGN_OR_RETURN(Layer layer,
                            LoadScaled<double>(problem.weights, problem.gram, scale, context));
  const std::vector<double> norms = Normalise(layer);
  Alternation alternation({layer.gram, layer.weights, layer.rows, layer.cols}, problem.pattern,
                          context);
  SPARSEFW_RETURN_IF_ERROR(alternation.Run());

  PrunedLayer result{Mask(layer.rows, layer.cols), Matrix<float>(layer.rows, layer.cols),
                     alternation.iterations()};
  const DType dtype = problem.weights.dtype();
  for (int64_t row = 0; row < layer.rows; ++row) {
    for (int64_t col = 0; col < layer.cols; ++col) {
      if (alternation.pruned()(row, col) != 0) continue;
      result.mask.Set(row, col, true);
      const double weight = alternation.weights()(row, col) / norms[static_cast<size_t>(col)];
      result.weights(row, col) = RoundedTo(dtype, std::ldexp(weight, -scale.weights_exponent));
    }
  }
  const std::optional<NonFinite> found = FindNonFinite(result.weights.view());
  if (!found) return result;
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; that at [%d, %d] does not",
                 DTypeName(dtype), found->row, found->col);
}

}  // namespace alps

int64_t AlpsBytes(int64_t rows, int64_t cols) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t layer = 8 * stride * (rows + cols);
  // Y, B, D, V, the right-hand side and the first D; factor, its transpose, the inverse.
  const int64_t matrices = 8 * stride * (6 * rows + 3 * cols) + 8 * 4 * 128 * cols;
  const int64_t marks = 2 * rows * cols;
  const int64_t weights = 4 * rows * cols;
  const int64_t masks = 4 * rows * ((cols + 7) / 8);
  return layer + matrices + marks + weights + masks;
}

}  // namespace sparsefw
