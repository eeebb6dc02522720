#include "core/src/cpu/joint/joint_search.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/src/cpu/joint/row_search.h"
#include "core/src/cpu/linalg/float64_product.h"
#include "core/src/cpu/reconstruct/reconstruct.h"
#include "core/src/joint/joint_rows.h"
#include "core/src/joint/joint_rules.h"
#include "core/src/parallel/scratch_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

size_t Index(int64_t index) { return static_cast<size_t>(index); }

template <typename Real>
class JointSearch {
 public:
  JointSearch(const EngineProblem& problem, const Scale& scale, const Mask& start,
              const JointRequest& request, const ParallelContext& context)
      : problem_(problem),
        given_scale_(scale),
        scale_(NearOne(scale)),
        request_(request),
        context_(context),
        rows_(problem, scale_, start, request),
        budget_(context, request.out_of_time),
        searches_([this] {
          return std::make_unique<RowSearch<Real>>(layer_.gram, cols(), rows_.groups(), budget_);
        }) {}

  JointRows& found() { return rows_; }
  bool converged() const { return converged_; }

  absl::Status Prepare() {
    SPARSEFW_ASSIGN_OR_RETURN(layer_,
                              LoadScaled<Real>(problem_.weights, problem_.gram, scale_, context_));
    products_ = Matrix<double>(rows(), layer_.stride());
    SPARSEFW_RETURN_IF_ERROR(Losses(
        *request_.weights, [&](int64_t row, double loss) { rows_.state(row).start_loss = loss; }));
    // A lower bound of what a column outside would gain, from the residuals of these losses.
    bounds_ = Matrix<float>(rows(), cols());
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t j = 0; j < cols(); ++j) {
        const double residual = products_(row, j);
        const auto diagonal = static_cast<double>(layer_.gram(j, j));
        bounds_(row, j) = diagonal > 0 ? static_cast<float>(residual * residual / diagonal) : 0.0F;
      }
    }
    // G becomes H, until SolveWeights.
    for (int64_t j = 0; j < cols(); ++j) diagonal_.push_back(layer_.gram(j, j));
    AddDamping(layer_, request_.options.damping);
    SPARSEFW_RETURN_IF_ERROR(Float64Product(
        layer_,
        [&](int64_t row, int64_t first, int64_t count, double* out) {
          for (int64_t i = 0; i < count; ++i) out[i] = Weight(row, first + i);
        },
        products_, context_));
    for (int64_t row = 0; row < rows(); ++row) {
      double squares = 0;
      double energy = 0;
      for (int64_t j = 0; j < cols(); ++j) {
        const double weight = Weight(row, j);
        energy += weight * products_(row, j);
        squares += weight * weight * static_cast<double>(layer_.gram(j, j));
      }
      rows_.state(row).energy = energy;
      rows_.SetTolerance(row, squares, kTableauTolerance<Real>);
    }
    return absl::OkStatus();
  }

  // Each row by itself: where one budget serves the matrix, rows keep as many weights as they had.
  absl::Status SearchRows() {
    std::vector<uint8_t> converged(Index(rows()));
    const absl::Status status = context_.ForEach(rows(), [&](int64_t row) {
      std::optional<JointRowResult> found = SearchRow(row);
      if (!found.has_value()) return;
      converged[Index(row)] = found->converged ? 1 : 0;
      rows_.Take(row, found->kept.data(), found->weights.data(), found->loss, found->exchanges);
    });
    converged_ =
        status.ok() && std::all_of(converged.begin(), converged.end(), [](auto c) { return c; });
    searches_.Clear();
    return absl::OkStatus();
  }

  // More exactly than in the tableau. Without time those of the tableau stand. Losses are of G
  // itself from here on.
  absl::Status SolveWeights() {
    if (context_.stopped()) return absl::OkStatus();
    for (int64_t j = 0; j < cols(); ++j) layer_.gram(j, j) = diagonal_[Index(j)];
    absl::StatusOr<Matrix<float>> solved =
        ReconstructWeights(kPrecision, problem_, given_scale_, rows_.result().mask,
                           {&rows_.result().weights, request_.options.damping},
                           request_.EndOfSolving(&converged_), context_);
    if (absl::IsCancelled(solved.status())) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(solved.status());
    rows_.result().weights = *std::move(solved);
    return absl::OkStatus();
  }

  // What the weights found lose. Where it cannot be found any more, L* is an upper estimate:
  // damping adds to it.
  absl::Status TakeLosses() {
    if (context_.stopped()) return absl::OkStatus();
    const absl::Status status = Losses(
        rows_.result().weights, [&](int64_t row, double loss) { rows_.state(row).loss = loss; });
    return absl::IsCancelled(status) ? absl::OkStatus() : status;
  }

 private:
  static constexpr Precision kPrecision =
      std::is_same_v<Real, double> ? Precision::kFloat64 : Precision::kFloat32;

  int64_t rows() const { return rows_.rows(); }
  int64_t cols() const { return rows_.cols(); }
  double Weight(int64_t row, int64_t col) const {
    return static_cast<double>(layer_.weights(row, col));
  }

  // ||(W - weights) X||^2 of every row, in the scale of the layer, whose gram is G now.
  // Overwrites products_.
  template <typename Take>
  absl::Status Losses(const Matrix<float>& weights, const Take& take) {
    const double factor = scale_.weights_factor();
    const auto missing = [&](int64_t row, int64_t col) {
      return Weight(row, col) - static_cast<double>(weights(row, col)) * factor;
    };
    SPARSEFW_RETURN_IF_ERROR(Float64Product(
        layer_,
        [&](int64_t row, int64_t first, int64_t count, double* out) {
          for (int64_t i = 0; i < count; ++i) out[i] = missing(row, first + i);
        },
        products_, context_));
    for (int64_t row = 0; row < rows(); ++row) {
      double loss = 0;
      for (int64_t j = 0; j < cols(); ++j) loss += missing(row, j) * products_(row, j);
      take(row, loss);
    }
    return absl::OkStatus();
  }

  std::optional<JointRowResult> SearchRow(int64_t row) {
    if (budget_.Spent()) return std::nullopt;
    const std::vector<uint8_t> kept = rows_.KeptOf(row);
    const std::vector<uint8_t> fixed = rows_.FixedOf(row);
    const typename ScratchPool<RowSearch<Real>>::Lease search(searches_);
    return search.get().Run({.products = products_.row(row),
                             .energy = rows_.state(row).energy,
                             .tolerance = rows_.state(row).tolerance,
                             .columns = {.excluded = rows_.ExcludedOf(kept),
                                         .bounds = bounds_.row(row),
                                         .kept = kept.data(),
                                         .fixed = fixed.data()}});
  }

  const EngineProblem& problem_;
  const Scale given_scale_;
  const Scale scale_;
  const JointRequest& request_;
  const ParallelContext& context_;
  JointRows rows_;
  SwapBudget budget_;
  ScaledLayer<Real> layer_;     // with the damping on the diagonal of its gram
  std::vector<Real> diagonal_;  // without it
  Matrix<double> products_;     // [rows, stride]: b = wH
  Matrix<float> bounds_;        // [rows, cols]: gains of columns outside, at least
  ScratchPool<RowSearch<Real>> searches_;
  bool converged_ = false;
};

}  // namespace

absl::StatusOr<JointResult> SearchJointly(Precision precision, const EngineProblem& problem,
                                          const Scale& scale, const Mask& start,
                                          const JointRequest& request,
                                          const ParallelContext& context) {
  if (precision == Precision::kFloat64) {
    JointSearch<double> search(problem, scale, start, request, context);
    return RunJointStages(search);
  }
  JointSearch<float> search(problem, scale, start, request, context);
  return RunJointStages(search);
}

int64_t JointSearchBytes(int64_t rows, int64_t cols, int threads, int64_t size) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t layer = size * (rows + cols) * stride;
  const int64_t searching = threads * TableauBytes(cols, size) + rows * 5 * cols;
  return layer + 8 * rows * stride + 2 * 4 * rows * cols + 256 * rows +
         std::max({searching, Float64ProductBytes(rows, cols), ReconstructBytes(rows, cols, size)});
}

}  // namespace sparsefw::cpu
