#include "core/src/reference/reference_engine.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/src/linalg/blas.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reference/reference_searches.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

// Looks at the limits before every row; rows in order, so that sums are.
template <typename Body>
absl::Status EachRow(int64_t rows, const ParallelContext& context, const Body& body) {
  for (int64_t row = 0; row < rows; ++row) {
    SPARSEFW_RETURN_IF_ERROR(context.CheckStopped());
    body(row);
  }
  return absl::OkStatus();
}

absl::StatusOr<Matrix<double>> ToDouble(ConstMatrixView view, const ParallelContext& context) {
  Matrix<double> result(view.rows(), view.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(view.rows(), context, [&](int64_t row) {
    ConvertToDouble(view.row_bytes(row), view.dtype(), static_cast<size_t>(view.cols()),
                    result.row(row));
  }));
  return result;
}

absl::StatusOr<Matrix<double>> ToDouble(const Mask& mask, const ParallelContext& context) {
  Matrix<double> result(mask.rows(), mask.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask.rows(), context, [&](int64_t row) {
    for (int64_t col = 0; col < mask.cols(); ++col) result(row, col) = mask.Get(row, col) ? 1 : 0;
  }));
  return result;
}

absl::StatusOr<double> InnerProduct(const Matrix<double>& a, const Matrix<double>& b,
                                    const ParallelContext& context) {
  double sum = 0;
  SPARSEFW_RETURN_IF_ERROR(EachRow(a.rows(), context, [&](int64_t row) {
    for (int64_t col = 0; col < a.cols(); ++col) sum += a(row, col) * b(row, col);
  }));
  return sum;
}

constexpr int64_t kStepsPerLook = int64_t{1} << 16;

// Moves the `count` first in the order of `before` to the front and drops the others.
template <typename Before>
absl::Status SelectFirst(std::vector<int64_t>& indices, int64_t count,
                         const ParallelContext& context, const Before& before) {
  if (count >= std::ssize(indices)) return absl::OkStatus();
  // A selection of millions can be left by an exception only; it goes no further.
  struct Stopped {};
  int64_t compared = 0;
  try {
    std::nth_element(indices.begin(), indices.begin() + count, indices.end(),
                     [&](int64_t a, int64_t b) {
                       if (++compared % kStepsPerLook == 0 && context.stopped()) throw Stopped();
                       return before(a, b);
                     });
  } catch (const Stopped&) {
    return absl::CancelledError("stopped during a selection");
  }
  indices.resize(static_cast<size_t>(count));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReferenceEngine::Load(const EngineProblem& problem) {
  dtype_ = problem.weights.dtype();
  gram_dtype_ = problem.gram.dtype();
  fixed_ = *problem.fixed;
  previous_vertex_ = *problem.warm;
  counters_ = {};
  evaluation_.reset();
  SPARSEFW_ASSIGN_OR_RETURN(weights_, ToDouble(problem.weights, context_));
  SPARSEFW_ASSIGN_OR_RETURN(mask_, ToDouble(*problem.warm, context_));

  saliency_ = Matrix<float>(weights_.rows(), weights_.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(saliency_.rows(), context_, [&](int64_t row) {
    problem.saliency.CopyRow(row, saliency_.row(row));
  }));
  groups_ = GroupsOf(problem.pattern, weights_.rows(), weights_.cols());
  free_capacity_.assign(static_cast<size_t>(group_count()), groups_.capacity);
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask_.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      if (!fixed_.Get(row, col)) continue;
      --free_capacity_[static_cast<size_t>((row * cols() + col) / group_size())];
    }
  }));

  SPARSEFW_ASSIGN_OR_RETURN(gram_, ToDouble(problem.gram, context_));
  return EachRow(gram_.rows(), context_, [&](int64_t i) {
    for (int64_t j = 0; j < i; ++j) gram_(i, j) = gram_(j, i) = (gram_(i, j) + gram_(j, i)) / 2;
  });
}

absl::StatusOr<Matrix<double>> ReferenceEngine::TimesGram(const Matrix<double>& left) const {
  Matrix<double> product(left.rows(), left.cols());
  SPARSEFW_RETURN_IF_ERROR(
      Gemm<double>({left.rows(), left.cols(), left.cols()}, left, gram_, product, context_));
  return product;
}

// S = W.E and the loss at a mask.
absl::StatusOr<Matrix<double>> ReferenceEngine::Scores(const Matrix<double>& mask,
                                                       double& loss) const {
  Matrix<double> pruned(mask.rows(), mask.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      pruned(row, col) = weights_(row, col) * (1 - mask(row, col));
    }
  }));
  SPARSEFW_ASSIGN_OR_RETURN(Matrix<double> scores, TimesGram(pruned));
  SPARSEFW_ASSIGN_OR_RETURN(loss, InnerProduct(pruned, scores, context_));
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) scores(row, col) *= weights_(row, col);
  }));
  return scores;
}

template <typename Eligible, typename Before>
absl::Status ReferenceEngine::SelectInGroups(const Eligible& eligible, const Before& before,
                                             Mask& mask) const {
  std::vector<int64_t> indices;
  for (int64_t group = 0; group < group_count(); ++group) {
    indices.clear();
    for (int64_t i = group * group_size(); i < (group + 1) * group_size(); ++i) {
      if (i % kStepsPerLook == 0) SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
      if (!IsFixed(i) && eligible(i)) indices.push_back(i);
    }
    SPARSEFW_RETURN_IF_ERROR(
        SelectFirst(indices, free_capacity_[static_cast<size_t>(group)], context_, before));
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i % kStepsPerLook == 0) SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
      mask.Set(indices[i] / cols(), indices[i] % cols(), true);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Mask> ReferenceEngine::BestVertex(const Matrix<double>& scores) const {
  Mask vertex = fixed_;
  const double* score = scores.data();
  const auto before = [&](int64_t a, int64_t b) {
    return std::tuple(score[a], a) > std::tuple(score[b], b);
  };
  SPARSEFW_RETURN_IF_ERROR(SelectInGroups([&](int64_t i) { return score[i] > 0; }, before, vertex));
  return vertex;
}

absl::Status ReferenceEngine::Evaluate() {
  if (evaluation_) return absl::OkStatus();
  Evaluation evaluation;
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> scores, Scores(mask_, evaluation.loss));
  SPARSEFW_ASSIGN_OR_RETURN(evaluation.vertex, BestVertex(scores));
  double gap = 0;
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask_.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      const double vertex = evaluation.vertex.Get(row, col) ? 1 : 0;
      gap += 2 * scores(row, col) * (vertex - mask_(row, col));
    }
  }));
  evaluation.gap = std::max(0.0, gap);  // below 0 by rounding only: V_t maximises <S, V>
  counters_.lower_bound = std::max(counters_.lower_bound, evaluation.loss - evaluation.gap);
  evaluation_ = std::move(evaluation);
  return absl::OkStatus();
}

absl::StatusOr<double> ReferenceEngine::StepSize(StepRule rule) const {
  if (rule == StepRule::kOpenLoop) return 2.0 / static_cast<double>(counters_.iteration + 2);
  // L(M + eta (V - M)) = L - eta g + eta^2 q
  Matrix<double> difference(mask_.rows(), mask_.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask_.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      const double vertex = evaluation_->vertex.Get(row, col) ? 1 : 0;
      difference(row, col) = weights_(row, col) * (vertex - mask_(row, col));
    }
  }));
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> product, TimesGram(difference));
  SPARSEFW_ASSIGN_OR_RETURN(const double q, InnerProduct(difference, product, context_));
  const double gap = evaluation_->gap;
  if (q <= 0) return gap > 0 ? 1.0 : 0.0;
  return std::clamp(gap / (2 * q), 0.0, 1.0);
}

absl::Status ReferenceEngine::TakeStep(StepRule rule) {
  SPARSEFW_ASSIGN_OR_RETURN(const double eta, StepSize(rule));
  // A copy: a stop leaves M_t as it is.
  Matrix<double> next(mask_.rows(), mask_.cols());
  int64_t toggled = 0;
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask_.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      const bool in_vertex = evaluation_->vertex.Get(row, col);
      const double entry = mask_(row, col);
      // Not (1 - eta) m + eta v: an entry whose mask and vertex agree stays exactly where it is.
      next(row, col) = entry + eta * ((in_vertex ? 1 : 0) - entry);
      toggled += in_vertex != previous_vertex_.Get(row, col) ? 1 : 0;
    }
  }));
  mask_ = std::move(next);
  counters_.toggled += toggled;
  previous_vertex_ = std::move(evaluation_->vertex);
  evaluation_.reset();
  counters_.step_size = eta;
  ++counters_.iteration;
  return absl::OkStatus();
}

absl::StatusOr<StepStats> ReferenceEngine::Step(const StepRequest& request) {
  for (int64_t taken = 0;; ++taken) {
    SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
    SPARSEFW_RETURN_IF_ERROR(Evaluate());
    const bool reached_gap =
        request.rel_gap > 0 && evaluation_->gap <= request.rel_gap * evaluation_->loss;
    if (reached_gap || taken >= request.count) {
      return StepStats{.iteration = counters_.iteration,
                       .relaxed_loss = evaluation_->loss,
                       .gap = evaluation_->gap,
                       .step_size = counters_.step_size,
                       .lower_bound = counters_.lower_bound,
                       .toggled = counters_.toggled,
                       .reached_gap = reached_gap};
    }
    SPARSEFW_RETURN_IF_ERROR(TakeStep(request.rule));
  }
}

absl::StatusOr<RoundedMask> ReferenceEngine::Round() {
  RoundedMask rounded{fixed_, 0};
  const double* entry = mask_.data();
  const float* saliency = saliency_.data();
  const auto before = [&](int64_t a, int64_t b) {
    return std::tuple(entry[a], saliency[a], a) > std::tuple(entry[b], saliency[b], b);
  };
  SPARSEFW_RETURN_IF_ERROR(SelectInGroups([](int64_t) { return true; }, before, rounded.mask));
  double distance = 0;
  SPARSEFW_RETURN_IF_ERROR(EachRow(mask_.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      distance += std::fabs(mask_(row, col) - (rounded.mask.Get(row, col) ? 1 : 0));
    }
  }));
  if (groups_.total_kept > 0) {
    rounded.threshold_residual = distance / static_cast<double>(groups_.total_kept);
  }
  return rounded;
}

// Loss, gap and vertex of M_t are evaluated once more: they follow from it.
absl::Status ReferenceEngine::SaveIteration(StateWriter& writer) {
  SPARSEFW_RETURN_IF_ERROR(writer.Field("ref_scalars", BytesOf(counters_)));
  SPARSEFW_RETURN_IF_ERROR(writer.Field("mask", std::as_bytes(mask_.span())));
  return writer.Field("last_vertex", previous_vertex_.bytes());
}

absl::Status ReferenceEngine::RestoreIteration(StateReader& reader) {
  SPARSEFW_RETURN_IF_ERROR(reader.Read("ref_scalars", WritableBytesOf(counters_)));
  SPARSEFW_RETURN_IF_ERROR(reader.Read("mask", std::as_writable_bytes(mask_.span())));
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> vertex,
                            reader.Field("last_vertex", previous_vertex_.bytes().size()));
  SPARSEFW_ASSIGN_OR_RETURN(previous_vertex_, Mask::FromBytes(mask_.rows(), mask_.cols(), vertex));
  evaluation_.reset();
  return absl::OkStatus();
}

absl::StatusOr<double> ReferenceEngine::Loss(const Mask& mask) {
  double loss = 0;
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> entries, ToDouble(mask, context_));
  SPARSEFW_RETURN_IF_ERROR(Scores(entries, loss).status());
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
  Matrix<float> weights =
      ReferenceReconstruct(weights_, gram_, mask, dtype_, gram_dtype_, /*guess=*/nullptr,
                           [&] { return Ended(request.out_of_time); });
  SPARSEFW_RETURN_IF_ERROR(context_.CheckStopped());
  return weights;
}

// Taken as a whole or not at all.
absl::StatusOr<JointResult> ReferenceEngine::SearchJointly(const Mask& start,
                                                           const JointRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(const double before, LossOfWeights(*request.weights));
  JointResult found = ReferenceJoint(weights_, gram_, groups_, start, request, dtype_,
                                     [&] { return Ended(request.out_of_time); });
  if (found.exchanges > 0) {
    const auto end = request.EndOfSolving(&found.converged);
    found.weights =
        ReferenceReconstruct(weights_, Damped(gram_, request.options.damping), found.mask, dtype_,
                             gram_dtype_, &found.weights, [&] { return Ended(end); });
  }
  const absl::StatusOr<double> after = LossOfWeights(found.weights);
  if (after.ok() && LosesLess(*after, Rounding(found.weights), before)) {
    found.loss = *after;
    return found;
  }
  if (!after.ok() && !absl::IsCancelled(after.status())) return after.status();
  found.mask = start;
  std::copy_n(request.weights->data(), request.weights->size(), found.weights.data());
  found.loss = before;
  found.exchanges = 0;
  return found;
}

double ReferenceEngine::Rounding(const Matrix<float>& weights) const {
  double squares = 0;
  for (int64_t row = 0; row < weights.rows(); ++row) {
    for (int64_t col = 0; col < cols(); ++col) {
      const double missing = weights_(row, col) - static_cast<double>(weights(row, col));
      squares += missing * missing * gram_(col, col);
    }
  }
  return GramRounding(gram_dtype_, DType::kF64) * squares;
}

absl::StatusOr<double> ReferenceEngine::LossOfWeights(const Matrix<float>& weights) {
  Matrix<double> pruned(weights.rows(), weights.cols());
  SPARSEFW_RETURN_IF_ERROR(EachRow(weights.rows(), context_, [&](int64_t row) {
    for (int64_t col = 0; col < cols(); ++col) {
      pruned(row, col) = weights_(row, col) - static_cast<double>(weights(row, col));
    }
  }));
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<double> product, TimesGram(pruned));
  return InnerProduct(pruned, product, context_);
}

}  // namespace sparsefw
