#include "core/src/alps/alps.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/src/alps/alternation.h"
#include "core/src/cpu/reconstruct/row_conjugate_gradients.h"
#include "core/src/linalg/finite.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/reconstruct/rounded_value.h"
#include "sparsefw/alps.h"
#include "sparsefw/joint.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace alps {
namespace {

using Layer = ScaledLayer<double>;

// Adds the damping, then makes the diagonal 1; returns s.
absl::StatusOr<std::vector<double>> Normalise(Layer& layer, const ParallelContext& context) {
  double mean = 0;
  for (int64_t j = 0; j < layer.cols; ++j) {
    mean += layer.gram(j, j) / static_cast<double>(layer.cols);
  }
  std::vector<double> norms;
  for (int64_t j = 0; j < layer.cols; ++j) {
    layer.gram(j, j) += kDamping * mean;
    norms.push_back(layer.gram(j, j) > 0 ? std::sqrt(layer.gram(j, j)) : 1);
  }
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({layer.cols, RowGrain(layer.cols)}, [&](int64_t i) {
    for (int64_t j = 0; j < layer.cols; ++j) {
      layer.gram(i, j) /= norms[static_cast<size_t>(i)] * norms[static_cast<size_t>(j)];
    }
  }));
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (int64_t j = 0; j < layer.cols; ++j) layer.weights(row, j) *= norms[static_cast<size_t>(j)];
  }));
  return norms;
}

absl::StatusOr<Matrix<float>> ToFloat(const Matrix<double>& from, const ParallelContext& context) {
  Matrix<float> to(from.rows(), from.cols());
  SPARSEFW_RETURN_IF_ERROR(
      context.ForEachRow({from.rows(), RowGrain(from.cols())}, [&](int64_t row) {
        std::transform(from.row(row), from.row(row) + from.cols(), to.row(row),
                       [](double value) { return static_cast<float>(value); });
      }));
  return to;
}

template <typename Real>
absl::StatusOr<PrunedLayer> PruneAs(const Layer& layer, const Matrix<Real>& h,
                                    const Matrix<Real>& dense, const std::vector<double>& norms,
                                    const Problem& problem, const Scale& scale,
                                    const Effort& effort, const ParallelContext& context) {
  Alternation<Real> alternation({layer.gram, h, dense, layer.rows, layer.cols}, problem.pattern,
                                effort.settled, context);
  SPARSEFW_RETURN_IF_ERROR(alternation.Run());
  SPARSEFW_RETURN_IF_ERROR(effort.steps > 0 ? alternation.PreconditionedSteps(effort.steps)
                                            : alternation.StepsOnSupport());
  PrunedLayer result{Mask(layer.rows, layer.cols), Matrix<float>(layer.rows, layer.cols),
                     alternation.iterations()};
  const DType dtype = problem.weights.dtype();
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({layer.rows, RowGrain(layer.cols)}, [&](int64_t row) {
    for (int64_t col = 0; col < layer.cols; ++col) {
      if (alternation.pruned()(row, col) != 0) continue;
      result.mask.Set(row, col, true);
      const double weight =
          static_cast<double>(alternation.weights()(row, col)) / norms[static_cast<size_t>(col)];
      result.weights(row, col) = RoundedTo(dtype, std::ldexp(weight, -scale.weights_exponent));
    }
  }));
  return result;
}

}  // namespace

absl::StatusOr<PrunedLayer> Prune(const Problem& problem, const Effort& effort,
                                  const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale, ChooseScale(problem.weights, problem.gram, context));
  SPARSEFW_ASSIGN_OR_RETURN(Layer layer,
                            LoadScaled<double>(problem.weights, problem.gram, scale, context));
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> norms, Normalise(layer, context));
  absl::StatusOr<PrunedLayer> result = PrunedLayer{};
  if (effort.single) {
    SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> dense, ToFloat(layer.weights, context));
    layer.weights = {};
    SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> h, ToFloat(layer.gram, context));
    result = PruneAs<float>(layer, h, dense, norms, problem, scale, effort, context);
  } else {
    result =
        PruneAs<double>(layer, layer.gram, layer.weights, norms, problem, scale, effort, context);
  }
  SPARSEFW_RETURN_IF_ERROR(result.status());
  const std::optional<NonFinite> found = FindNonFinite(result->weights.view());
  if (!found) return result;
  return Invalid("NON_FINITE",
                 "the new weights must fit in the dtype of weights, %s; that at [%d, %d] does not",
                 DTypeName(problem.weights.dtype()), found->row, found->col);
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

// The alternation in float32, of H^ in float64 as well, or the steps on its support.
int64_t JointStartBytes(int64_t rows, int64_t cols) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t layer = 8 * stride * (rows + cols) + 4 * stride * (rows + cols);
  // Y, B, D, V, the right-hand side and the first D, or what the steps hold in their place; the
  // factor in float64, the others as floats.
  const int64_t matrices =
      4 * stride * (8 * rows + 3 * cols) + 8 * stride * cols + 8 * 4 * 128 * cols;
  const int64_t steps =
      cpu::RowConjugateGradientsBytes(rows, cols, sizeof(float)) - 16 * rows * stride;
  const int64_t marks = 2 * rows * cols;
  const int64_t weights = 4 * rows * cols;
  const int64_t masks = 4 * rows * ((cols + 7) / 8);
  return layer + matrices + std::max(steps, int64_t{0}) + marks + weights + masks;
}

}  // namespace sparsefw
