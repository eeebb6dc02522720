// The CPU engine: incremental updates, sums in float64.
#ifndef SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_ENGINE_H_
#define SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_ENGINE_H_

#include <memory>
#include <optional>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/frank_wolfe.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// Memory: Load keeps the views; the first Step copies G, and W where it cannot be read as it
// is (scaled_layer.h), and allocates what the iteration needs, so that a caller who only asks for
// losses (the one-shot methods) pays for none of it. The copies stay for the next Load where
// EngineProblem::reused says that there will be one. Refine and Reconstruct
// release all of it and load W and G for themselves.
class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(const EngineOptions& options);

  absl::Status Load(const EngineProblem& problem) override;
  absl::StatusOr<StepStats> Step(const StepRequest& request) override;
  absl::StatusOr<RoundedMask> Round() override;
  absl::StatusOr<double> Loss(const Mask& mask) override;
  absl::StatusOr<double> LossNear(const Mask& mask, const KnownLoss& known) override;
  absl::StatusOr<RefinedMask> Refine(const Mask& start, const RefineRequest& request) override;
  absl::StatusOr<Matrix<float>> Reconstruct(const Mask& mask,
                                            const ReconstructRequest& request) override;
  absl::StatusOr<JointResult> SearchJointly(const Mask& start,
                                            const JointRequest& request) override;
  absl::StatusOr<double> LossOfWeights(const Matrix<float>& weights) override;
  absl::Status SaveIteration(StateWriter& writer) override;
  absl::Status RestoreIteration(StateReader& reader) override;

 private:
  Precision ChosenPrecision() const;
  // Starts at the warm start, or at the iteration of `saved` where it is not null.
  absl::Status Start(StateReader* saved);
  template <typename Real>
  absl::Status StartIn(StateReader* saved);
  void ReleaseIteration();
  absl::StatusOr<bool> MayAddLosses();

  const Precision precision_;
  const Screening screening_;
  const ParallelContext context_;
  EngineProblem problem_;
  Scale scale_;
  std::optional<bool> symmetric_;  // G, bit for bit; empty: not looked at yet
  // W and G of the chosen precision, for a later start on them.
  std::tuple<std::shared_ptr<const PanelLayer<float>>, std::shared_ptr<const PanelLayer<double>>>
      layers_;
  std::unique_ptr<IncrementalFrankWolfe<SaliencySource>> iteration_;  // null before the first Step
};

}  // namespace sparsefw::cpu

namespace sparsefw {

// The CPU backend: oneTBB, any CBLAS, SIMD chosen at run time. Lives as long as the program.
const Backend& CpuBackend();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_CPU_RUNTIME_CPU_ENGINE_H_
