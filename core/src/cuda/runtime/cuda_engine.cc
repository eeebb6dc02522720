#include "core/src/cuda/runtime/cuda_engine.h"

#include <cassert>
#include <cstdlib>
#include <utility>

#include "core/src/cuda/joint/joint_search.h"
#include "core/src/cuda/linalg/mask_loss.h"
#include "core/src/cuda/memory/device_bytes.h"
#include "core/src/cuda/prune/prune.h"
#include "core/src/cuda/reconstruct/reconstruct.h"
#include "core/src/cuda/runtime/use_device.h"
#include "core/src/cuda/swaps/swap_refine.h"
#include "core/src/joint/joint_rows.h"
#include "core/src/linalg/loss_change_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

CudaEngine::CudaEngine(int device, const EngineOptions& options)
    : device_(device), options_(options) {}

// Members free their memory in the order of the stream, on the device that is
// current in this thread. The context waits for the stream: the Gram may go as
// soon as the engine has, and nothing may read it any more, not even after an error.
CudaEngine::~CudaEngine() { static_cast<void>(UseDevice(device_)); }

absl::Status CudaEngine::OpenDevice(const EngineProblem& problem) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  if (context_ != nullptr) return absl::OkStatus();
  const ConstMatrixView weights = problem.weights;
  SPARSEFW_ASSIGN_OR_RETURN(
      context_, ExecutionContext::Open(device_, WorkspaceBytes(weights.rows(), weights.cols()),
                                       options_.stop));
  return absl::OkStatus();
}

absl::Status CudaEngine::OpenGram(const EngineProblem& problem) {
  if (gram_ != nullptr) return absl::OkStatus();
  const auto* given = static_cast<const CudaGram*>(problem.device_gram);
  assert(given == nullptr || given->device() == device_);
  if (given == nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(
        own_gram_, CudaGram::Upload(device_, problem.gram, options_.stop, problem.shrinkage));
  } else if (problem.shrinkage > 0) {
    SPARSEFW_ASSIGN_OR_RETURN(own_gram_, CudaGram::Shrunk(*given, problem.shrinkage));
  }
  gram_ = own_gram_ != nullptr ? own_gram_.get() : given;
  return absl::OkStatus();
}

absl::Status CudaEngine::Load(const EngineProblem& problem) {
  if (options_.stop != nullptr && options_.stop->requested()) {
    return absl::CancelledError("the engine was told to stop");
  }
  SPARSEFW_RETURN_IF_ERROR(OpenDevice(problem));
  SPARSEFW_RETURN_IF_ERROR(OpenGram(problem));
  frank_wolfe_.reset();
  if (weights_.view().data == nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(
        weights_, GivenMatrix::Upload(problem.weights, context_->stream(), options_.stop));
    scale_ = {Scale::ExponentFor(weights_.max_abs()), Scale::ExponentFor(gram_->max_abs())};
  }
  SPARSEFW_ASSIGN_OR_RETURN(saliency_,
                            DeviceSaliency::Upload(problem.saliency, weights_.view(), *context_));
  if (problem.choice != nullptr) {
    SPARSEFW_RETURN_IF_ERROR(ChooseStart(problem, saliency_, *context_));
  }
  problem_ = problem;
  problem_.choice = nullptr;  // it is valid during Load only
  return absl::OkStatus();
}

Precision CudaEngine::ChosenPrecision() const {
  const ConstMatrixView weights = problem_.weights;
  return options_.precision == Precision::kAuto
             ? PrecisionFor(weights.rows(), weights.cols(), options_.product_precision)
             : options_.precision;
}

template <typename Use>
std::invoke_result_t<Use, DeviceLayer<float>&> CudaEngine::WithLayer(const Use& use) {
  using Result = std::invoke_result_t<Use, DeviceLayer<float>&>;
  const auto with = [&]<typename Real>(Real) -> Result {
    if (!std::holds_alternative<DeviceLayer<Real>>(layer_)) {
      SPARSEFW_ASSIGN_OR_RETURN(
          layer_, LoadLayer<Real>(weights_.view(), gram_->matrix(), scale_, context_->stream()));
    }
    return use(std::get<DeviceLayer<Real>>(layer_));
  };
  return ChosenPrecision() == Precision::kFloat64 ? with(double{}) : with(float{});
}

absl::Status CudaEngine::Start(StateReader* saved) {
  return WithLayer([&]<typename Real>(DeviceLayer<Real>& layer) -> absl::Status {
    const StartPoint start = {problem_.pattern, *problem_.warm, *problem_.fixed};
    const FormOptions forms = {.precision = options_.product_precision,
                               .dense_share = options_.tuning.dense_share};
    SPARSEFW_ASSIGN_OR_RETURN(
        frank_wolfe_, saved != nullptr
                          ? FrankWolfe<Real>::Restore(layer, start, forms, *saved, *context_)
                          : FrankWolfe<Real>::Start(layer, start, forms, *context_));
    return absl::OkStatus();
  });
}

absl::Status CudaEngine::SaveIteration(StateWriter& writer) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  if (frank_wolfe_ == nullptr) {
    return absl::FailedPreconditionError("there is no iteration to save");
  }
  return frank_wolfe_->Save(writer);
}

absl::Status CudaEngine::RestoreIteration(StateReader& reader) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  return Start(&reader);
}

absl::StatusOr<StepStats> CudaEngine::Step(const StepRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  if (frank_wolfe_ == nullptr) SPARSEFW_RETURN_IF_ERROR(Start(nullptr));
  SPARSEFW_ASSIGN_OR_RETURN(StepStats stats, frank_wolfe_->Step(request));
  stats.relaxed_loss = scale_.Unscaled(stats.relaxed_loss);
  stats.gap = scale_.Unscaled(stats.gap);
  stats.lower_bound = scale_.Unscaled(stats.lower_bound);
  return stats;
}

absl::StatusOr<RoundedMask> CudaEngine::Round() {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  if (frank_wolfe_ == nullptr) return RoundedMask{*problem_.warm, 0};
  return frank_wolfe_->Round(saliency_);
}

absl::StatusOr<double> CudaEngine::Loss(const Mask& mask) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  return MaskLoss(weights_.view(), gram_->matrix(), mask, scale_, *context_);
}

absl::StatusOr<bool> CudaEngine::MayAddLosses() {
  if (std::abs(scale_.gram_exponent) > kLargestExponentOfChanges) return false;
  if (!symmetric_.has_value()) {
    SPARSEFW_ASSIGN_OR_RETURN(symmetric_, IsSymmetric(gram_->matrix(), *context_));
  }
  return *symmetric_;
}

absl::StatusOr<double> CudaEngine::LossNear(const Mask& mask, const KnownLoss& known) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  if (!DifferInFew(mask, known.mask)) return Loss(mask);
  SPARSEFW_ASSIGN_OR_RETURN(const bool may_add, MayAddLosses());
  if (!may_add) return Loss(mask);
  SPARSEFW_ASSIGN_OR_RETURN(const double change, LossChange(weights_.view(), gram_->matrix(),
                                                            known.mask, mask, scale_, *context_));
  return known.loss + change;
}

absl::StatusOr<RefinedMask> CudaEngine::Refine(const Mask& start, const RefineRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  frank_wolfe_.reset();
  return WithLayer([&](const auto& layer) {
    return RefineMask(problem_, layer, scale_, start, request, *context_);
  });
}

absl::StatusOr<Matrix<float>> CudaEngine::Reconstruct(const Mask& mask,
                                                      const ReconstructRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  frank_wolfe_.reset();
  return WithLayer([&](const auto& layer) {
    return ReconstructWeights(problem_, layer, scale_, mask, nullptr, request.out_of_time,
                              *context_);
  });
}

// In float64 whatever the iteration's precision: its layer makes room.
absl::StatusOr<PrunedWeights> CudaEngine::Prune(const PruneRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  frank_wolfe_.reset();
  layer_ = std::monostate();
  SPARSEFW_ASSIGN_OR_RETURN(
      DeviceLayer<double> layer,
      LoadLayer<double>(weights_.view(), gram_->matrix(), scale_, context_->stream()));
  PruneInputs inputs = {std::move(layer), problem_.pattern, scale_, problem_.weights.dtype()};
  return request.method == WeightMethod::kAlps
             ? PruneByAlps(std::move(inputs), request, *context_)
             : PruneBySparseGpt(std::move(inputs), request, *context_);
}

template <typename Real>
absl::StatusOr<JointResult> CudaEngine::SearchJointlyAs(const Mask& start,
                                                        const JointRequest& request) {
  layer_ = std::monostate();  // the search has one of its own scale
  const Scale scale = NearOne(scale_);
  SPARSEFW_ASSIGN_OR_RETURN(
      DeviceLayer<Real> layer,
      LoadLayer<Real>(weights_.view(), gram_->matrix(), scale, context_->stream()));
  layer.largest_exponent = 0;
  return cuda::SearchJointly(problem_, layer, scale, start, request, options_.threads, *context_);
}

absl::StatusOr<JointResult> CudaEngine::SearchJointly(const Mask& start,
                                                      const JointRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  frank_wolfe_.reset();
  return ChosenPrecision() == Precision::kFloat64 ? SearchJointlyAs<double>(start, request)
                                                  : SearchJointlyAs<float>(start, request);
}

absl::StatusOr<double> CudaEngine::LossOfWeights(const Matrix<float>& weights) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device_));
  return cuda::LossOfWeights(weights_.view(), gram_->matrix(), weights, scale_, *context_);
}

}  // namespace sparsefw::cuda
