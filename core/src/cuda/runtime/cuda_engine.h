// The CUDA engine: one problem on one stream of one device.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ENGINE_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ENGINE_H_

#include <memory>
#include <optional>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/memory/device_gram.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/select/start_choice.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Memory: Load keeps the views. W and G as they were given are on the device from the first
// Load on, G the caller's copy or one of the engine's own, which has the shrinkage. The first
// method that needs W and G in the engine's form loads them, and they stay, as does what the
// saliency is computed from; what an iteration needs beside them goes with Refine and Reconstruct.
// Nothing of the caller's memory is used between calls but the views and the Gram on the device.
// Errors: beside those of the interface  ResourceExhausted  OUT_OF_MEMORY
//                                        Internal           DEVICE_LOST
class CudaEngine final : public Engine {
 public:
  // device: CUDA's number. Allocates nothing before Load.
  CudaEngine(int device, const EngineOptions& options);
  ~CudaEngine() override;

  absl::Status Load(const EngineProblem& problem) override;
  absl::StatusOr<StepStats> Step(const StepRequest& request) override;
  absl::StatusOr<RoundedMask> Round() override;
  absl::StatusOr<double> Loss(const Mask& mask) override;
  absl::StatusOr<double> LossNear(const Mask& mask, const KnownLoss& known) override;
  absl::StatusOr<RefinedMask> Refine(const Mask& start, const RefineRequest& request) override;
  absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                            const ReconstructRequest& request) override;
  absl::StatusOr<PrunedWeights> Prune(const PruneRequest& request) override;
  absl::StatusOr<JointResult> SearchJointly(const Mask& start,
                                            const JointRequest& request) override;
  absl::StatusOr<double> LossOfWeights(const Matrix<float>& weights) override;
  absl::Status SaveIteration(StateWriter& writer) override;
  absl::Status RestoreIteration(StateReader& reader) override;

 private:
  absl::Status OpenDevice(const EngineProblem& problem);
  absl::Status OpenGram(const EngineProblem& problem);
  Precision ChosenPrecision() const;
  absl::StatusOr<bool> MayAddLosses();
  // use(layer), a DeviceLayer of the precision chosen, which is loaded where it is not there.
  template <typename Use>
  std::invoke_result_t<Use, DeviceLayer<float>&> WithLayer(const Use& use);
  // At the warm start, or where `saved` is, if it is not null.
  absl::Status Start(StateReader* saved);
  template <typename Real>
  absl::StatusOr<JointResult> SearchJointlyAs(const Mask& start, const JointRequest& request);

  const int device_;
  const EngineOptions options_;
  EngineProblem problem_;
  Scale scale_;
  std::shared_ptr<const CudaGram> own_gram_;  // where the problem brings none, or shrinks it
  const CudaGram* gram_ = nullptr;            // of the problem or the engine's own
  std::optional<bool> symmetric_;             // gram_, bit for bit, once LossNear has looked
  // In this order: what is below uses what is above until it is gone.
  std::unique_ptr<ExecutionContext> context_;  // null before Load
  GivenMatrix weights_;
  DeviceSaliency saliency_;
  std::variant<std::monostate, DeviceLayer<float>, DeviceLayer<double>> layer_;
  std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>
      frank_wolfe_;  // null before the first Step
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_CUDA_ENGINE_H_
