#include "core/src/reference/reference_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/src/linalg/blas.h"
#include "core/src/reference/reference_reconstruct.h"
#include "core/src/reference/reference_refine.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

Matrix<double> ToDouble(ConstMatrixView view) {
  Matrix<double> result(view.rows(), view.cols());
  for (int64_t row = 0; row < view.rows(); ++row) {
    ConvertToDouble(view.row_bytes(row), view.dtype(), static_cast<size_t>(view.cols()),
                    result.row(row));
  }
  return result;
}

double InnerProduct(const Matrix<double>& a, const Matrix<double>& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size(); ++i) sum += a.data()[i] * b.data()[i];
  return sum;
}

Matrix<double> ToDouble(const Mask& mask) {
  Matrix<double> result(mask.rows(), mask.cols());
  for (int64_t row = 0; row < mask.rows(); ++row) {
    for (int64_t col = 0; col < mask.cols(); ++col) result(row, col) = mask.Get(row, col) ? 1 : 0;
  }
  return result;
}

int64_t CountDifferences(const Mask& a, const Mask& b) {
  int64_t count = 0;
  for (int64_t row = 0; row < a.rows(); ++row) {
    for (int64_t col = 0; col < a.cols(); ++col)
      count += a.Get(row, col) != b.Get(row, col) ? 1 : 0;
  }
  return count;
}

// Moves the `count` first in the order of `before` to the front.
template <typename Before>
void SelectFirst(std::vector<int64_t>& indices, int64_t count, Before before) {
  if (count >= std::ssize(indices)) return;
  std::nth_element(indices.begin(), indices.begin() + count, indices.end(), before);
  indices.resize(static_cast<size_t>(count));
}

}  // namespace

absl::Status ReferenceEngine::Load(const EngineProblem& problem) {
  return context_.Run([&] { return LoadLayer(problem); });
}

absl::Status ReferenceEngine::LoadLayer(const EngineProblem& problem) {
  dtype_ = problem.weights.dtype();
  weights_ = ToDouble(problem.weights);
  fixed_ = *problem.fixed;
  mask_ = ToDouble(*problem.warm);
  previous_vertex_ = *problem.warm;
  iteration_ = 0;
  step_size_ = 0;
  lower_bound_ = -std::numeric_limits<double>::infinity();
  evaluation_.reset();

  saliency_ = Matrix<float>(weights_.rows(), weights_.cols());
  for (int64_t row = 0; row < saliency_.rows(); ++row) {
    std::copy_n(problem.saliency.row<float>(row), cols(), saliency_.row(row));
  }
  groups_ = GroupsOf(problem.pattern, weights_.rows(), weights_.cols());
  free_capacity_.assign(static_cast<size_t>(group_count()), groups_.capacity);
  for (int64_t index = 0; index < mask_.size(); ++index) {
    if (IsFixed(index)) --free_capacity_[static_cast<size_t>(index / group_size())];
  }

  gram_ = ToDouble(problem.gram);
  for (int64_t i = 0; i < gram_.rows(); ++i) {
    SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
    for (int64_t j = 0; j < i; ++j) gram_(i, j) = gram_(j, i) = (gram_(i, j) + gram_(j, i)) / 2;
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix<double>> ReferenceEngine::TimesGram(const Matrix<double>& left) const {
  Matrix<double> product(left.rows(), left.cols());
  const GemmArgs<double> args = {.rows = left.rows(),
                                 .cols = left.cols(),
                                 .depth = left.cols(),
                                 .a = left.data(),
                                 .a_stride = left.cols(),
                                 .b = gram_.data(),
                                 .b_stride = gram_.cols(),
                                 .c = product.data(),
                                 .c_stride = product.cols()};
  SPARSEFW_RETURN_IF_ERROR(Gemm(args, context_));
  return product;
}

// S = W.E and the loss at a mask.
absl::StatusOr<Matrix<double>> ReferenceEngine::Scores(const Matrix<double>& mask,
                                                       double& loss) const {
  Matrix<double> pruned(mask.rows(), mask.cols());
  for (int64_t i = 0; i < mask.size(); ++i) {
    pruned.data()[i] = weights_.data()[i] * (1 - mask.data()[i]);
  }
  SPARSEFW_ASSIGN_OR_RETURN(Matrix<double> scores, TimesGram(pruned));
  loss = InnerProduct(pruned, scores);
  for (int64_t i = 0; i < mask.size(); ++i) scores.data()[i] *= weights_.data()[i];
  return scores;
}

absl::StatusOr<Mask> ReferenceEngine::BestVertex(const Matrix<double>& scores) const {
  Mask vertex = fixed_;
  const double* score = scores.data();
  std::vector<int64_t> indices;
  for (int64_t group = 0; group < group_count(); ++group) {
    SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
    indices.clear();
    for (int64_t i = group * group_size(); i < (group + 1) * group_size(); ++i) {
      if (score[i] > 0 && !IsFixed(i)) indices.push_back(i);
    }
    SelectFirst(indices, free_capacity_[static_cast<size_t>(group)], [&](int64_t a, int64_t b) {
      return std::tuple(score[a], a) > std::tuple(score[b], b);
    });
    for (const int64_t i : indices) vertex.Set(i / cols(), i % cols(), true);
  }
  return vertex;
}

absl::Status ReferenceEngine::Evaluate() {
  if (evaluation_) return absl::OkStatus();
  Evaluation evaluation;
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> scores, Scores(mask_, evaluation.loss));
  SPARSEFW_ASSIGN_OR_RETURN(evaluation.vertex, BestVertex(scores));
  double gap = 0;
  for (int64_t i = 0; i < mask_.size(); ++i) {
    const double vertex = evaluation.vertex.Get(i / cols(), i % cols()) ? 1 : 0;
    gap += 2 * scores.data()[i] * (vertex - mask_.data()[i]);
  }
  evaluation.gap = std::max(0.0, gap);  // below 0 by rounding only: V_t maximises <S, V>
  lower_bound_ = std::max(lower_bound_, evaluation.loss - evaluation.gap);
  evaluation_ = std::move(evaluation);
  return absl::OkStatus();
}

absl::StatusOr<double> ReferenceEngine::StepSize(StepRule rule) const {
  if (rule == StepRule::kOpenLoop) return 2.0 / static_cast<double>(iteration_ + 2);
  // L(M + eta (V - M)) = L - eta g + eta^2 q
  Matrix<double> difference(mask_.rows(), mask_.cols());
  for (int64_t i = 0; i < mask_.size(); ++i) {
    const double vertex = evaluation_->vertex.Get(i / cols(), i % cols()) ? 1 : 0;
    difference.data()[i] = weights_.data()[i] * (vertex - mask_.data()[i]);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> product, TimesGram(difference));
  const double q = InnerProduct(difference, product);
  const double gap = evaluation_->gap;
  if (q <= 0) return gap > 0 ? 1.0 : 0.0;
  return std::clamp(gap / (2 * q), 0.0, 1.0);
}

absl::Status ReferenceEngine::TakeStep(StepRule rule) {
  SPARSEFW_ASSIGN_OR_RETURN(const double eta, StepSize(rule));
  for (int64_t i = 0; i < mask_.size(); ++i) {
    const double vertex = evaluation_->vertex.Get(i / cols(), i % cols()) ? 1 : 0;
    // Not (1 - eta) m + eta v: an entry whose mask and vertex agree stays exactly where it is.
    mask_.data()[i] += eta * (vertex - mask_.data()[i]);
  }
  toggled_ += CountDifferences(evaluation_->vertex, previous_vertex_);
  previous_vertex_ = std::move(evaluation_->vertex);
  evaluation_.reset();
  step_size_ = eta;
  ++iteration_;
  return absl::OkStatus();
}

absl::StatusOr<StepStats> ReferenceEngine::Step(const StepRequest& request) {
  absl::StatusOr<StepStats> stats;
  SPARSEFW_RETURN_IF_ERROR(context_.Run([&] {
    stats = RunSteps(request);
    return stats.status();
  }));
  return stats;
}

absl::StatusOr<StepStats> ReferenceEngine::RunSteps(const StepRequest& request) {
  for (int64_t taken = 0;; ++taken) {
    SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
    SPARSEFW_RETURN_IF_ERROR(Evaluate());
    const bool reached_gap =
        request.rel_gap > 0 && evaluation_->gap <= request.rel_gap * evaluation_->loss;
    if (reached_gap || taken >= request.count) {
      return StepStats{.iteration = iteration_,
                       .relaxed_loss = evaluation_->loss,
                       .gap = evaluation_->gap,
                       .step_size = step_size_,
                       .lower_bound = lower_bound_,
                       .toggled = toggled_,
                       .reached_gap = reached_gap};
    }
    SPARSEFW_RETURN_IF_ERROR(TakeStep(request.rule));
  }
}

absl::StatusOr<RoundedMask> ReferenceEngine::Round() {
  SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
  RoundedMask rounded{fixed_, 0};
  const double* entry = mask_.data();
  const float* saliency = saliency_.data();
  std::vector<int64_t> indices;
  for (int64_t group = 0; group < group_count(); ++group) {
    indices.clear();
    for (int64_t i = group * group_size(); i < (group + 1) * group_size(); ++i) {
      if (!IsFixed(i)) indices.push_back(i);
    }
    SelectFirst(indices, free_capacity_[static_cast<size_t>(group)], [&](int64_t a, int64_t b) {
      return std::tuple(entry[a], saliency[a], a) > std::tuple(entry[b], saliency[b], b);
    });
    for (const int64_t i : indices) rounded.mask.Set(i / cols(), i % cols(), true);
  }
  double distance = 0;
  for (int64_t i = 0; i < mask_.size(); ++i) {
    distance += std::fabs(entry[i] - (rounded.mask.Get(i / cols(), i % cols()) ? 1 : 0));
  }
  if (groups_.total_kept > 0) {
    rounded.threshold_residual = distance / static_cast<double>(groups_.total_kept);
  }
  return rounded;
}

absl::StatusOr<double> ReferenceEngine::Loss(const Mask& mask) {
  double loss = 0;
  SPARSEFW_RETURN_IF_ERROR(context_.Run([&] { return Scores(ToDouble(mask), loss).status(); }));
  return loss;
}

absl::StatusOr<RefinedMask> ReferenceEngine::Refine(const Mask& start,
                                                    const RefineRequest& request) {
  const Mask locked = request.keep_fixed ? fixed_ : Mask(start.rows(), start.cols());
  return ReferenceRefine(weights_, gram_, groups_, start, locked,
                         [&] { return Ended(request.out_of_time); });
}

absl::StatusOr<Matrix<float>> ReferenceEngine::Reconstruct(const Mask& mask,
                                                           const ReconstructRequest& request) {
  Matrix<float> weights = ReferenceReconstruct(weights_, gram_, mask, dtype_,
                                               [&] { return Ended(request.out_of_time); });
  SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
  return weights;
}

absl::StatusOr<double> ReferenceEngine::LossOfWeights(const Matrix<float>& weights) {
  Matrix<double> pruned(weights.rows(), weights.cols());
  for (int64_t i = 0; i < weights.size(); ++i) {
    pruned.data()[i] = weights_.data()[i] - static_cast<double>(weights.data()[i]);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> product, TimesGram(pruned));
  return InnerProduct(pruned, product);
}

}  // namespace sparsefw
