#include "core/src/cuda/runtime/cuda_engine.h"

#include <cassert>
#include <utility>

#include "core/src/cuda/linalg/mask_loss.h"
#include "core/src/cuda/reconstruct/reconstruct.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_bytes.h"
#include "core/src/cuda/swaps/swap_refine.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

Precision PrecisionFor(int64_t rows, int64_t cols, ProductPrecision product) {
  const bool small = rows * cols < (int64_t{1} << 20) && cols <= 2048;
  return small && product == ProductPrecision::kFloat32 ? Precision::kFloat64 : Precision::kFloat32;
}

CudaEngine::CudaEngine(int device, const EngineOptions& options)
    : device_(device), options_(options) {}

// Members free their memory in the order of the stream, on the device that is
// current in this thread. The Gram may go as soon as the engine has: nothing on
// the stream may read it any more, not even after an error.
CudaEngine::~CudaEngine() {
  static_cast<void>(UseDevice());
  iteration_.reset();
  layer_ = std::monostate();
  product_.reset();
  if (stream_) static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

absl::Status CudaEngine::UseDevice() const {
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_));
  return absl::OkStatus();
}

absl::Status CudaEngine::OpenDevice(const EngineProblem& problem) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  if (product_.has_value()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(stream_, CreateStream());
  const ConstMatrixView weights = problem.weights;
  SPARSEFW_ASSIGN_OR_RETURN(
      DenseProduct product,
      DenseProduct::Create(stream_.get(), WorkspaceBytes(weights.rows(), weights.cols())));
  product_.emplace(std::move(product));
  return absl::OkStatus();
}

absl::Status CudaEngine::OpenGram(const EngineProblem& problem) {
  if (gram_ != nullptr) return absl::OkStatus();
  if (problem.device_gram != nullptr) {
    gram_ = static_cast<const CudaGram*>(problem.device_gram);
    assert(gram_->device() == device_);
    return absl::OkStatus();
  }
  SPARSEFW_ASSIGN_OR_RETURN(own_gram_, CudaGram::Upload(device_, problem.gram, options_.stop));
  gram_ = own_gram_.get();
  return absl::OkStatus();
}

absl::Status CudaEngine::Load(const EngineProblem& problem) {
  if (options_.stop != nullptr && options_.stop->requested()) {
    return absl::CancelledError("the engine was told to stop");
  }
  SPARSEFW_RETURN_IF_ERROR(OpenDevice(problem));
  SPARSEFW_RETURN_IF_ERROR(OpenGram(problem));
  const bool first = problem_.warm == nullptr;
  iteration_.reset();
  if (first) {
    SPARSEFW_ASSIGN_OR_RETURN(scale_,
                              ChooseScale(problem.weights, gram_->max_abs(), stream_.get()));
  }
  problem_ = problem;
  return absl::OkStatus();
}

Precision CudaEngine::ChosenPrecision() const {
  const ConstMatrixView weights = problem_.weights;
  return options_.precision == Precision::kAuto
             ? PrecisionFor(weights.rows(), weights.cols(), options_.product_precision)
             : options_.precision;
}

template <typename Real>
absl::StatusOr<DeviceLayer<Real>*> CudaEngine::LoadedLayer() {
  if (!std::holds_alternative<DeviceLayer<Real>>(layer_)) {
    SPARSEFW_ASSIGN_OR_RETURN(
        layer_, LoadLayer<Real>(problem_.weights, gram_->matrix(), scale_, stream_.get()));
  }
  return &std::get<DeviceLayer<Real>>(layer_);
}

template <typename Real>
absl::Status CudaEngine::Start() {
  SPARSEFW_ASSIGN_OR_RETURN(DeviceLayer<Real> * layer, LoadedLayer<Real>());
  const StartPoint start = {problem_.pattern, *problem_.warm, *problem_.fixed};
  const Device device = {stream_.get(),        &*product_,
                         options_.stop,        options_.product_precision,
                         options_.tiled_share, options_.dense_share};
  SPARSEFW_ASSIGN_OR_RETURN(iteration_, FrankWolfe<Real>::Start(*layer, start, device));
  return absl::OkStatus();
}

absl::StatusOr<StepStats> CudaEngine::Step(const StepRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  if (iteration_ == nullptr) {
    SPARSEFW_RETURN_IF_ERROR(ChosenPrecision() == Precision::kFloat64 ? Start<double>()
                                                                      : Start<float>());
  }
  SPARSEFW_ASSIGN_OR_RETURN(StepStats stats, iteration_->Step(request));
  stats.relaxed_loss = scale_.Unscaled(stats.relaxed_loss);
  stats.gap = scale_.Unscaled(stats.gap);
  stats.lower_bound = scale_.Unscaled(stats.lower_bound);
  return stats;
}

absl::StatusOr<RoundedMask> CudaEngine::Round() {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  if (iteration_ == nullptr) return RoundedMask{*problem_.warm, 0};
  return iteration_->Round(problem_.saliency);
}

absl::StatusOr<double> CudaEngine::Loss(const Mask& mask) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  return MaskLoss(problem_.weights, gram_->matrix(), mask, scale_, options_.stop, *product_,
                  stream_.get());
}

absl::StatusOr<RefinedMask> CudaEngine::Refine(const Mask& start, const RefineRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  iteration_.reset();
  const auto refine = [&](auto* layer) {
    return RefineMask(problem_, *layer, scale_, start, request, options_.stop, *product_,
                      stream_.get());
  };
  if (ChosenPrecision() == Precision::kFloat64) {
    SPARSEFW_ASSIGN_OR_RETURN(DeviceLayer<double> * layer, LoadedLayer<double>());
    return refine(layer);
  }
  SPARSEFW_ASSIGN_OR_RETURN(DeviceLayer<float> * layer, LoadedLayer<float>());
  return refine(layer);
}

absl::StatusOr<Matrix<float>> CudaEngine::Reconstruct(const Mask& mask,
                                                      const ReconstructRequest& request) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  iteration_.reset();
  const auto reconstruct = [&](const auto* layer) {
    return ReconstructWeights(problem_, *layer, scale_, mask, request, options_.stop, *product_,
                              stream_.get());
  };
  if (ChosenPrecision() == Precision::kFloat64) {
    SPARSEFW_ASSIGN_OR_RETURN(const DeviceLayer<double>* layer, LoadedLayer<double>());
    return reconstruct(layer);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const DeviceLayer<float>* layer, LoadedLayer<float>());
  return reconstruct(layer);
}

absl::StatusOr<double> CudaEngine::LossOfWeights(const Matrix<float>& weights) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice());
  return cuda::LossOfWeights(problem_.weights, gram_->matrix(), weights, scale_, options_.stop,
                             *product_, stream_.get());
}

}  // namespace sparsefw::cuda
