// Screened iterations: when they begin and end, and how they are taken.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/src/cpu/iteration/frank_wolfe.h"
#include "core/src/cpu/screen/screened_rows.h"
#include "core/src/frank_wolfe/lazy_mask.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// A step that leaves less of the iterate than this is taken on all columns: the mask's
// entries may have to be rewritten.
constexpr double kLeastStay = 0x1.0p-8;

// Rows that share nothing run all their iterations one after the other.
bool RowByRow(const StepRequest& request) {
  return request.rule == StepRule::kOpenLoop && request.rel_gap == 0;
}

}  // namespace

// How many of the next steps can be screened; 0: the next one cannot. Epochs begin
// and end at iterations that the iterates alone decide, whatever the batches.
template <typename Real>
absl::StatusOr<int64_t> FrankWolfe<Real>::ScreenedStepsFrom(const StepRequest& request,
                                                            int64_t left) {
  if (screen_ == nullptr) return 0;
  if (screen_->running() && at_.iteration >= screen_->end()) SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
  if (!screen_->running() && screen_->MayBegin(at_.iteration) && !ComputesProductAnew() &&
      !ComputesVertexProductAnew()) {
    const bool together = row_selector_ == nullptr || !RowByRow(request);
    SPARSEFW_RETURN_IF_ERROR(
        screen_->Begin(at_, together, NeedsRefresh(), [this] { ReleaseWholeIterations(); }));
  }
  return screen_->running() ? std::min(left, screen_->end() - at_.iteration) : 0;
}

// An epoch has the memory of iterations on all columns while it runs.
template <typename Real>
void FrankWolfe<Real>::ReleaseWholeIterations() {
  update_.Release();
  selector_->Release();
}

template <typename Real>
void FrankWolfe<Real>::ForgetGathered() {
  if (screened_matrix_ != nullptr) screened_matrix_->Forget();
  if (screened_ahead_ != nullptr) screened_ahead_->Forget();
}

template <typename Real>
absl::Status FrankWolfe<Real>::LeaveEpoch() {
  ForgetGathered();
  return screen_->End(at_.iteration);
}

template <typename Real>
absl::Status FrankWolfe<Real>::AdvanceScreened(const StepRequest& request, int64_t count) {
  fresh_ = false;
  if (RowByRow(request)) {
    return row_selector_ != nullptr ? AdvanceScreenedRows(count) : AdvanceScreenedAhead(count);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (ReachedGap(at_, request.rel_gap) || Stationary(request.rule)) break;
    SPARSEFW_ASSIGN_OR_RETURN(const bool more, AdvanceScreenedMatrix(request.rule));
    if (!more) break;
  }
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::AdvanceScreenedRows(int64_t count) {
  screened_matrix_->Forget();
  ScreenedRows<Real> steps{*screen_, *row_selector_, context_};
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<StepSums> sums, steps.Take(at_.iteration, count));
  TakeOpenLoopSteps(sums);
  return absl::OkStatus();
}

template <typename Real>
absl::Status FrankWolfe<Real>::AdvanceScreenedAhead(int64_t count) {
  screened_matrix_->Forget();
  while (count > 0) {
    SPARSEFW_ASSIGN_OR_RETURN(auto outcome, screened_ahead_->Take(at_.iteration, count));
    count -= std::ssize(outcome.sums);
    const StepSums last = outcome.sums.back();
    if (!outcome.selected) outcome.sums.pop_back();
    TakeOpenLoopSteps(outcome.sums);
    if (outcome.selected) continue;
    at_.vertex_loss += last.vertex_loss_change;
    toggled_ += last.toggled;
    TakeStep(at_, OpenLoopStep<Real>(at_.iteration));
    screen_->shared_plan().Widen();
    SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
    return Scan(0);
  }
  return absl::OkStatus();
}

// One iteration. False: the epoch has ended.
template <typename Real>
absl::StatusOr<bool> FrankWolfe<Real>::AdvanceScreenedMatrix(StepRule rule) {
  std::optional<double> known;
  if (rule == StepRule::kOpenLoop) known = OpenLoopStep<Real>(at_.iteration);
  double step = known.value_or(0);
  const auto choose = [&](double change) {
    Recurrence at = at_;
    at.vertex_loss += change;
    step = ChooseStep<Real>(at, true);
    return 1 - step >= kLeastStay ? step : -1;
  };
  SPARSEFW_ASSIGN_OR_RETURN(const auto outcome, screened_matrix_->Step(known, choose));
  at_.vertex_loss += outcome.sums.vertex_loss_change;
  toggled_ += outcome.sums.toggled;
  if (!outcome.stepped) {
    SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
    TakeStep(at_, step);
    SPARSEFW_RETURN_IF_ERROR(AdvanceRelaxed(step));
    SPARSEFW_RETURN_IF_ERROR(Scan(step));
    return false;
  }
  TakeStep(at_, step);
  if (!outcome.selected) {
    screen_->shared_plan().Widen();
    SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
    SPARSEFW_RETURN_IF_ERROR(Scan(0));
    return false;
  }
  EvaluateVertex(at_, outcome.sums.vertex_inner);
  return true;
}

#define SPARSEFW_INSTANTIATE(Real)                                                         \
  template void FrankWolfe<Real>::ReleaseWholeIterations();                                \
  template void FrankWolfe<Real>::ForgetGathered();                                        \
  template absl::StatusOr<int64_t> FrankWolfe<Real>::ScreenedStepsFrom(const StepRequest&, \
                                                                       int64_t);           \
  template absl::Status FrankWolfe<Real>::AdvanceScreened(const StepRequest&, int64_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
