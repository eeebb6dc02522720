#include "core/src/cpu/cpu_engine.h"

#include <utility>

#include "core/src/cpu/mask_loss.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

Precision PrecisionFor(int64_t rows, int64_t cols) {
  return rows * cols < (int64_t{1} << 20) && cols <= 2048 ? Precision::kFloat64
                                                          : Precision::kFloat32;
}

CpuEngine::CpuEngine(const EngineOptions& options, Precision precision)
    : precision_(precision),
      workers_(options.threads, options.stop),
      unstoppable_(options.threads, nullptr) {}

absl::Status CpuEngine::Load(const EngineProblem& problem) {
  const bool first = problem_.warm == nullptr;
  problem_ = problem;
  iteration_.reset();
  if (!first) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(scale_, ChooseScale(problem.weights, problem.gram, workers_));
  return absl::OkStatus();
}

absl::Status CpuEngine::Start() {
  const ConstMatrixView weights = problem_.weights;
  const Precision precision =
      precision_ == Precision::kAuto ? PrecisionFor(weights.rows(), weights.cols()) : precision_;
  return precision == Precision::kFloat64 ? StartIn<double>() : StartIn<float>();
}

template <typename Real>
absl::Status CpuEngine::StartIn() {
  SPARSEFW_ASSIGN_OR_RETURN(ScaledLayer<Real> layer,
                            LoadScaled<Real>(problem_.weights, problem_.gram, scale_, workers_));
  const StartPoint start = {problem_.pattern, *problem_.warm, *problem_.fixed};
  SPARSEFW_ASSIGN_OR_RETURN(iteration_, FrankWolfe<Real>::Start(std::move(layer), start, workers_));
  return absl::OkStatus();
}

absl::StatusOr<StepStats> CpuEngine::Step(const StepRequest& request) {
  if (iteration_ == nullptr) SPARSEFW_RETURN_IF_ERROR(Start());
  SPARSEFW_ASSIGN_OR_RETURN(StepStats stats, iteration_->Step(request));
  stats.relaxed_loss = scale_.Unscaled(stats.relaxed_loss);
  stats.gap = scale_.Unscaled(stats.gap);
  stats.lower_bound = scale_.Unscaled(stats.lower_bound);
  return stats;
}

absl::StatusOr<RoundedMask> CpuEngine::Round() {
  if (iteration_ == nullptr) return RoundedMask{*problem_.warm, 0};
  return iteration_->Round(problem_.saliency, unstoppable_);
}

absl::StatusOr<double> CpuEngine::Loss(const Mask& mask) {
  return MaskLoss(problem_.weights, problem_.gram, mask, scale_, workers_);
}

}  // namespace sparsefw::cpu
