#include "core/src/cpu/runtime/cpu_engine.h"

#include <type_traits>
#include <utility>

#include "core/src/cpu/joint/joint_search.h"
#include "core/src/cpu/linalg/half_product_loss.h"
#include "core/src/cpu/linalg/loss_change.h"
#include "core/src/cpu/reconstruct/reconstruct.h"
#include "core/src/cpu/swaps/swap_refine.h"
#include "core/src/linalg/loss_change_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

CpuEngine::CpuEngine(const EngineOptions& options)
    : precision_(options.precision),
      screening_(options.tuning.screening),
      context_(options.threads, options.stop) {}

absl::Status CpuEngine::Load(const EngineProblem& problem) {
  const bool first = problem_.warm == nullptr;
  problem_ = problem;
  iteration_.reset();
  if (!first) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(scale_, ChooseScale(problem.weights, problem.gram, context_));
  return absl::OkStatus();
}

Precision CpuEngine::ChosenPrecision() const {
  const ConstMatrixView weights = problem_.weights;
  return precision_ == Precision::kAuto ? PrecisionFor(weights.rows(), weights.cols()) : precision_;
}

absl::Status CpuEngine::Start(StateReader* saved) {
  return ChosenPrecision() == Precision::kFloat64 ? StartIn<double>(saved) : StartIn<float>(saved);
}

template <typename Real>
absl::Status CpuEngine::StartIn(StateReader* saved) {
  auto& layer = std::get<std::shared_ptr<const PanelLayer<Real>>>(layers_);
  if (layer == nullptr) {
    // Losses are the same in either scale.
    const Scale scale =
        std::is_same_v<Real, float> ? ScaleInPlace(problem_.weights, scale_) : scale_;
    SPARSEFW_ASSIGN_OR_RETURN(PanelLayer<Real> loaded,
                              LoadPanels<Real>(problem_.weights, problem_.gram, scale, context_));
    layer = std::make_shared<PanelLayer<Real>>(std::move(loaded));
  }
  const StartPoint start = {problem_.pattern, *problem_.warm, *problem_.fixed, screening_};
  if (saved != nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(iteration_,
                              FrankWolfe<Real>::Restore(layer, start, *saved, context_));
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(iteration_, FrankWolfe<Real>::Start(layer, start, context_));
  }
  if (!problem_.reused) layer = nullptr;  // the iteration owns it
  return absl::OkStatus();
}

void CpuEngine::ReleaseIteration() {
  iteration_.reset();
  layers_ = {};
}

absl::StatusOr<StepStats> CpuEngine::Step(const StepRequest& request) {
  if (iteration_ == nullptr) SPARSEFW_RETURN_IF_ERROR(Start(nullptr));
  SPARSEFW_ASSIGN_OR_RETURN(StepStats stats, iteration_->Step(request));
  stats.relaxed_loss = scale_.Unscaled(stats.relaxed_loss);
  stats.gap = scale_.Unscaled(stats.gap);
  stats.lower_bound = scale_.Unscaled(stats.lower_bound);
  return stats;
}

absl::StatusOr<RoundedMask> CpuEngine::Round() {
  if (iteration_ == nullptr) return RoundedMask{*problem_.warm, 0};
  return iteration_->Round(problem_.saliency);
}

absl::Status CpuEngine::SaveIteration(StateWriter& writer) {
  if (iteration_ == nullptr) return absl::FailedPreconditionError("there is no iteration to save");
  return iteration_->Save(writer);
}

absl::Status CpuEngine::RestoreIteration(StateReader& reader) { return Start(&reader); }

absl::StatusOr<double> CpuEngine::Loss(const Mask& mask) {
  return HalfProductLoss(problem_.weights, problem_.gram, mask, scale_, context_);
}

absl::StatusOr<bool> CpuEngine::MayAddLosses() {
  if (std::abs(scale_.gram_exponent) > kLargestExponentOfChanges) return false;
  if (!symmetric_.has_value()) {
    SPARSEFW_ASSIGN_OR_RETURN(symmetric_, IsSymmetric(problem_.gram, context_));
  }
  return *symmetric_;
}

absl::StatusOr<double> CpuEngine::LossNear(const Mask& mask, const KnownLoss& known) {
  if (!DifferInFew(mask, known.mask)) return Loss(mask);
  SPARSEFW_ASSIGN_OR_RETURN(const bool may_add, MayAddLosses());
  if (!may_add) return Loss(mask);
  SPARSEFW_ASSIGN_OR_RETURN(const double change, LossChange(problem_.weights, problem_.gram,
                                                            known.mask, mask, scale_, context_));
  return known.loss + change;
}

absl::StatusOr<RefinedMask> CpuEngine::Refine(const Mask& start, const RefineRequest& request) {
  ReleaseIteration();
  return RefineMask(ChosenPrecision(), problem_, scale_, start, request, context_);
}

absl::StatusOr<Matrix<float>> CpuEngine::Reconstruct(const Mask& mask,
                                                     const ReconstructRequest& request) {
  ReleaseIteration();
  return ReconstructWeights(ChosenPrecision(), problem_, scale_, mask, {}, request.out_of_time,
                            context_);
}

absl::StatusOr<JointResult> CpuEngine::SearchJointly(const Mask& start,
                                                     const JointRequest& request) {
  ReleaseIteration();
  return cpu::SearchJointly(ChosenPrecision(), problem_, scale_, start, request, context_);
}

absl::StatusOr<double> CpuEngine::LossOfWeights(const Matrix<float>& weights) {
  return HalfProductLossOfWeights(problem_.weights, problem_.gram, weights, scale_, context_);
}

}  // namespace sparsefw::cpu
