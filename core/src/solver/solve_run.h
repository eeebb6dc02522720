// One solve, with its clock given from outside.
#ifndef SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_
#define SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/src/alps/alps.h"
#include "core/src/solver/layer_cache.h"
#include "sparsefw/iteration_state.h"
#include "sparsefw/solver.h"

namespace sparsefw {

// Inputs of a solve, as in sparsefw/solver.h.
struct SolveContext {
  const Problem& problem;
  const SolveOptions& options;
  const Backend& backend;
  LayerCache& cache;  // of this W and G
  SolveObserver* observer = nullptr;
  const StopSignal* stop = nullptr;
  std::function<absl::Time()> now;
  Checkpoints checkpoints = {};
  int sweep_point = 0;
};

class CheckpointWriter;

std::vector<double> DiagonalOf(ConstMatrixView gram);

// Whether `mask` keeps all that `needed` does.
bool Keeps(const Mask& mask, const Mask& needed);

// One solve from end to end; whatever it throws has become a status.
absl::StatusOr<SolveResult> RunSolve(const SolveContext& context);

// Validation, warm start, fixed set; steps between report points; best mask.
// Lives for one call of Run. Throws std::bad_alloc: RunSolve turns it into a status.
class SolveRun {
 public:
  explicit SolveRun(const SolveContext& context);
  absl::StatusOr<SolveResult> Run();

 private:
  bool one_shot() const { return context_.options.method != Method::kSparseFw; }

  // Before there is a mask every error ends the solve, stop and deadline too.
  absl::Status Prepare();
  void ShrinkGram();
  absl::Status ChooseWarmStart();
  absl::Status LoadEngine();
  absl::Status EvaluateStart();
  absl::Status CheckLimits() const;
  absl::Status RunSparseGpt();  // solve_sparsegpt.cc
  absl::Status RunAlps();       // solve_alps.cc
  absl::Status TakeOwnWeights(Mask mask, Matrix<float> weights, double damping);

  // From then on stop and deadline only end the iteration.
  absl::Status RunStages();
  absl::Status Iterate();
  absl::Status BeginIteration();
  absl::StatusOr<bool> TakeBatch();
  absl::Status MeasureDrift();
  absl::Status Report();  // solve_report.cc, with losses and the end
  absl::StatusOr<double> TimedLoss(const Mask& mask);
  absl::StatusOr<double> LossOf(const Mask& mask);
  int64_t BatchSize() const;
  bool DeadlineNear() const;
  double Certificate(double loss) const;

  void Notify() const;

  // After it, on the best mask: solve_after.cc. Stop and deadline leave out the
  // rest of it.
  absl::Status Refine();
  absl::Status TakeRefined(RefinedMask refined);
  absl::Status Reconstruct();
  absl::Status MeasureNewWeights();
  absl::Status SearchJointly();  // solve_joint.cc
  absl::StatusOr<Mask> FixedInSearch(const Mask& mask, const Matrix<float>& weights) const;
  std::optional<alps::PrunedLayer> OtherStart();
  absl::Status TakeJoint(JointResult found);
  bool Stopped() const { return context_.stop != nullptr && context_.stop->requested(); }
  bool TimeForLosses(int count) const;
  bool TimeToBegin(int losses);
  absl::Status MeasureUnshrunk();
  absl::StatusOr<SolveResult> Finish();

  // solve_checkpoint.cc. What a solve does next; the values stand in checkpoints.
  enum class Stage : int64_t { kIterate = 0, kRefine = 1, kReconstruct = 2 };
  absl::Status OpenCheckpoints();
  absl::Status RestoreSolver();
  absl::Status RestoreEngine();
  absl::Status OfferCheckpoint(Stage next);
  absl::Status WriteCheckpoint(CheckpointWriter& writer, Stage next);
  absl::Duration Elapsed() const { return elapsed_before_ + (context_.now() - start_); }

  // What context_ refers to: options without kAuto, and the problem that is solved, whose gram
  // is the shrunk one after Prepare.
  const SolveOptions options_;
  const ConstMatrixView given_gram_;
  Problem problem_;
  const SolveContext context_;
  const absl::Time start_;
  Engine* engine_ = nullptr;  // of context_.work
  SaliencySource saliency_;
  Mask warm_;
  Mask fixed_;

  StepStats stats_;
  SolveResult result_;  // result_.mask and final_loss are the best so far
  Mask last_tried_;     // the mask whose loss is result_.rounded_loss
  int64_t last_report_ = -1;
  double threshold_residual_ = 0;  // at the last report
  bool fixed_kept_ = true;         // by the best mask
  // Measured on this layer, to be prompt about stop and deadline.
  absl::Duration round_time_;
  absl::Duration step_time_;

  std::string terms_;                  // empty: no checkpoints
  std::optional<StateReader> resume_;  // empty: from the start
  Stage next_ = Stage::kIterate;       // where it began
  absl::Duration elapsed_before_;      // in the solve that wrote the checkpoint
  absl::Time last_checkpoint_;
  absl::Duration checkpoint_took_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_SOLVE_RUN_H_
