// The incremental Frank-Wolfe iteration.
//
//   E_{t+1} = (1 - eta) E_t + eta U_t            E_t = D(M_t) G
//   U_t     = U_s + (D(V_t) - D(V_s)) G          one row of G for every
//                                                coordinate in which V_t
//                                                and V_s differ; s is t-1
//                                                or t-2, the nearer one
// Losses and gaps follow from three float64 sums: core/src/frank_wolfe/recurrence.h,
// which also says when E, U, L and b are computed anew by dense products. Which of
// the two ways U is updated depends on the iterates alone: the same input gives the
// same bits however Step is cut into batches.
//
// In this folder, in the order in which to read it:
//   iterate, relaxed_mask             E, U, V and M
//   frank_wolfe                       a step on all columns, and when it is taken on fewer:
//                                     frank_wolfe_screened.cc and ../screen/active_row.h
//   vertex_update                     U_s -> U_t by sparse_rows, tiled_product
//   ../select/vertex_selector.h       E_t -> E_{t+1} and V_{t+1}
//   frank_wolfe_dense, frank_wolfe_state   refreshes and checkpoints
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_FRANK_WOLFE_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_FRANK_WOLFE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/vertex_update.h"
#include "core/src/cpu/screen/screened_epoch.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/cpu/select/vertex_selector.h"
#include "core/src/frank_wolfe/incremental_frank_wolfe.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"

namespace sparsefw::cpu {

// Real, float or double, is the type of W, G, E, U and M.
template <typename Real>
class FrankWolfe final : public IncrementalFrankWolfe<SaliencySource> {
 public:
  // Evaluates loss and gap at M_0. `context` must outlive it.
  static absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<SaliencySource>>> Start(
      std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start,
      const ParallelContext& context);
  // Where another iteration of the same layer and start was saved.
  static absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<SaliencySource>>> Restore(
      std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start, StateReader& reader,
      const ParallelContext& context);

  absl::StatusOr<StepStats> Step(const StepRequest& request) override;
  absl::StatusOr<RoundedMask> Round(const SaliencySource& saliency) override;
  absl::Status Save(StateWriter& writer) override;

 private:
  // A run of at most this many steps on all columns needs no refresh.
  static constexpr int64_t kFewRoundings = 100;

  FrankWolfe(std::shared_ptr<const PanelLayer<Real>> layer, const StartPoint& start,
             const ParallelContext& context);
  absl::Status Initialise();

  absl::Status StepBy(const StepRequest& request);
  // frank_wolfe_screened.cc
  absl::StatusOr<int64_t> ScreenedStepsFrom(const StepRequest& request, int64_t left);
  absl::Status AdvanceScreened(const StepRequest& request, int64_t count);
  absl::Status EndEpochInStep(const ScreenedOutcome& outcome, double step_size);
  absl::Status LeaveEpoch();
  absl::Status Advance(StepRule rule);
  absl::Status ApplyAndScan(double step_size);
  absl::Status RecomputeVertexProduct();  // frank_wolfe_dense.cc, with CompareWithDense
  absl::Status AdvanceRelaxed(double step_size);
  void AdvanceRelaxed(int64_t block, double step_size);
  absl::Status CompareWithDense(double step_size, bool replace);
  absl::Status Scan(double step_size);  // and evaluates loss and gap
  bool Stationary(StepRule rule) const;
  // Whether the next step refreshes what recurrence.h says, if it is on all columns.
  bool NeedsRefresh() const { return rounded_ >= kFewRoundings; }
  bool ComputesProductAnew() const { return NeedsRefresh() && RefreshesProduct(at_.iteration); }
  bool ComputesVertexProductAnew() const {
    return NeedsRefresh() && RefreshesVertexProduct(at_.iteration);
  }
  double StepSize(StepRule rule) const;

  // frank_wolfe_state.cc
  absl::Status RestoreFrom(StateReader& reader);
  template <typename Visit>  // visit(name, bytes) -> status
  absl::Status VisitState(const Visit& visit);
  template <typename Visit>
  absl::Status VisitProducts(const Visit& visit);
  template <typename Visit>
  absl::Status VisitOlder(const Visit& visit);

  const ParallelContext& context_;
  Iterate<Real> iterate_;
  RelaxedMask<Real> relaxed_;
  VertexUpdate<Real> update_;
  std::unique_ptr<VertexSelector<Real>> selector_;
  std::unique_ptr<ScreenedEpoch<Real>> screen_;  // null: no iteration is screened
  std::unique_ptr<ScreenedSteps<Real>> screened_;
  bool unfinished_ = false;
  bool fresh_ = false;  // E and L were computed anew at this M
  // Steps on all columns since U was last computed anew. Only these round E and U: an epoch of
  // screened ones does it once.
  int64_t rounded_ = 0;
  // The iteration of the last comparison with a dense product. Its finding is reported for a
  // period; then another comparison is needed.
  int64_t compared_at_ = 0;
  Recurrence at_;
  int64_t toggled_ = 0;
  bool reached_gap_ = false;
  double drift_ = 0;
};

// Bytes that the iteration of a layer holds, scratch of that many threads included.
int64_t FrankWolfeBytes(int64_t rows, int64_t cols, int threads, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_FRANK_WOLFE_H_
