#include "core/src/cpu/reconstruct/reconstruct.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/src/cpu/linalg/float64_product.h"
#include "core/src/cpu/reconstruct/row_conjugate_gradients.h"
#include "core/src/linalg/finite.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kPanelRows = 2048;
constexpr int64_t kRowsOfTask = 16;

template <typename Real>
class Reconstruction {
 public:
  Reconstruction(const EngineProblem& problem, const Scale& scale, const Mask& mask,
                 const ReconstructStart& start, const ParallelContext& context)
      : dtype_(problem.weights.dtype()),
        gram_rounding_(GramRounding(problem.gram.dtype(), DTypeOf<Real>())),
        scale_(scale),
        mask_(mask),
        start_(start),
        context_(context),
        weights_(mask.rows(), mask.cols()) {}

  absl::StatusOr<Matrix<float>> Run(const EngineProblem& problem,
                                    const std::function<bool()>& out_of_time) {
    SPARSEFW_ASSIGN_OR_RETURN(layer_,
                              LoadScaled<Real>(problem.weights, problem.gram, scale_, context_));
    if (start_.damping != 0) AddDamping(layer_, start_.damping);
    for (int64_t first = 0; first < layer_.rows; first += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, layer_.rows - first);
      SPARSEFW_RETURN_IF_ERROR(EachRow(rows, [&](int64_t row) { TakeStart(first + row); }));
      if (!out_of_time || !out_of_time()) {
        SPARSEFW_RETURN_IF_ERROR(SolvePanel(first, rows, out_of_time));
      }
    }
    return std::move(weights_);
  }

 private:
  double Unscaled(double weight) const { return std::ldexp(weight, -scale_.weights_exponent); }
  double Masked(int64_t row, int64_t col) const {
    return mask_.Get(row, col) ? static_cast<double>(layer_.weights(row, col)) : 0;
  }
  void TakeStart(int64_t row) {
    if (start_.guess != nullptr) {
      std::copy_n(start_.guess->row(row), layer_.cols, weights_.row(row));
      return;
    }
    for (int64_t col = 0; col < layer_.cols; ++col) {
      weights_(row, col) = static_cast<float>(Unscaled(Masked(row, col)));
    }
  }

  absl::Status EachRow(int64_t rows, absl::FunctionRef<void(int64_t)> body) {
    return context_.ForEachRow({rows, kRowsOfTask}, body);
  }

  absl::Status SolvePanel(int64_t first, int64_t rows, const std::function<bool()>& out_of_time) {
    Matrix<double> product(rows, layer_.stride());
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> losses, RowLosses(first, product));
    RowConjugateGradients<Real> gradients(layer_.gram, mask_, first, rows);
    SPARSEFW_RETURN_IF_ERROR(gradients.Solve(
        product, losses, {.out_of_time = out_of_time, .solved_before = start_.guess != nullptr},
        context_));
    if (gradients.nothing_to_do()) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(EachRow(rows, [&](int64_t row) {
      const Real* solution = gradients.solution(row);
      for (int64_t col = 0; col < layer_.cols; ++col) {
        if (!mask_.Get(first + row, col)) continue;
        // Begun from, exact: it is of the dtype.
        const double start = static_cast<double>(weights_(first + row, col));
        weights_(first + row, col) =
            RoundedTo(dtype_, start + Unscaled(static_cast<double>(solution[col])));
      }
    }));
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> solved, RowLosses(first, product));
    return EachRow(rows, [&](int64_t row) {
      const auto index = static_cast<size_t>(row);
      if (!LosesLess(solved[index], Rounding(first + row), losses[index])) TakeStart(first + row);
    });
  }

  double Missing(int64_t row, int64_t col) const {
    return static_cast<double>(layer_.weights(row, col)) -
           static_cast<double>(weights_(row, col)) * scale_.weights_factor();
  }
  // As LosesLess has it.
  double Rounding(int64_t row) const {
    double squares = 0;
    for (int64_t col = 0; col < layer_.cols; ++col) {
      const double missing = Missing(row, col);
      squares += missing * missing * static_cast<double>(layer_.gram(col, col));
    }
    return gram_rounding_ * squares;
  }

  // Losses of weights_ in each row of the panel, by the damped G; product = (W - weights_) G.
  absl::StatusOr<std::vector<double>> RowLosses(int64_t first, Matrix<double>& product) {
    const auto fill = [&](int64_t row, int64_t col, int64_t count, double* out) {
      for (int64_t i = 0; i < count; ++i) out[i] = Missing(first + row, col + i);
    };
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, fill, product, context_));
    std::vector<double> losses(static_cast<size_t>(product.rows()));
    SPARSEFW_RETURN_IF_ERROR(EachRow(product.rows(), [&](int64_t row) {
      double loss = 0;
      for (int64_t col = 0; col < layer_.cols; ++col) {
        loss += Missing(first + row, col) * product(row, col);
      }
      losses[static_cast<size_t>(row)] = loss;
    }));
    return losses;
  }

  const DType dtype_;
  const double gram_rounding_;
  const Scale scale_;
  const Mask& mask_;
  const ReconstructStart start_;
  const ParallelContext& context_;
  ScaledLayer<Real> layer_;
  Matrix<float> weights_;  // the result
};

}  // namespace

absl::StatusOr<Matrix<float>> ReconstructWeights(Precision precision, const EngineProblem& problem,
                                                 const Scale& scale, const Mask& mask,
                                                 const ReconstructStart& start,
                                                 const std::function<bool()>& out_of_time,
                                                 const ParallelContext& context) {
  return precision == Precision::kFloat64
             ? Reconstruction<double>(problem, scale, mask, start, context)
                   .Run(problem, out_of_time)
             : Reconstruction<float>(problem, scale, mask, start, context)
                   .Run(problem, out_of_time);
}

template <typename Real>
void AddDamping(ScaledLayer<Real>& layer, double damping) {
  std::vector<Real> diagonal;
  for (int64_t j = 0; j < layer.cols; ++j) diagonal.push_back(layer.gram(j, j));
  const Real added = DampingTerm(diagonal, damping);
  for (int64_t j = 0; j < layer.cols; ++j) layer.gram(j, j) += added;
}

int64_t ReconstructBytes(int64_t rows, int64_t cols, int64_t size) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t panel = std::min(rows, kPanelRows);
  const int64_t layer = size * (rows + cols) * stride;
  const int64_t gradients = RowConjugateGradientsBytes(panel, cols, size);
  return layer + 4 * rows * cols + 8 * panel * stride + gradients +
         Float64ProductBytes(panel, cols);
}

template void AddDamping<float>(ScaledLayer<float>&, double);
template void AddDamping<double>(ScaledLayer<double>&, double);

}  // namespace sparsefw::cpu
