// Screened iterations: when they begin and end, and how they are taken.
#include <algorithm>
#include <iterator>

#include "core/src/cpu/iteration/frank_wolfe.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// A step that leaves less of the iterate than this is taken on all columns: the mask's
// entries may have to be rewritten.
constexpr double kLeastStay = 0x1.0p-8;

// Rows take many iterations, one row after the other: the steps are known, and no gap ends them.
bool TakesMany(const StepRequest& request) {
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
    const bool together = selector_->rows() == nullptr || !TakesMany(request);
    // An epoch has the memory of iterations on all columns while it runs.
    SPARSEFW_RETURN_IF_ERROR(screen_->Begin(at_, together, NeedsRefresh(), [this] {
      update_.Release();
      selector_->Release();
    }));
  }
  return screen_->running() ? std::min(left, screen_->end() - at_.iteration) : 0;
}

template <typename Real>
absl::Status FrankWolfe<Real>::LeaveEpoch() {
  screened_->Forget();
  return screen_->End(at_.iteration);
}

// Up to `count` iterations. They end before where the gap is reached or the epoch has ended.
template <typename Real>
absl::Status FrankWolfe<Real>::AdvanceScreened(const StepRequest& request, int64_t count) {
  fresh_ = false;
  const bool many = TakesMany(request);
  while (count > 0 && !ReachedGap(at_, request.rel_gap) && !Stationary(request.rule)) {
    double step_size = 0;
    const auto choose = [&](double change) {
      Recurrence at = at_;
      at.vertex_loss += change;
      step_size = ChooseStep<Real>(at, request.rule == StepRule::kLineSearch);
      return 1 - step_size >= kLeastStay ? step_size : -1;
    };
    SPARSEFW_ASSIGN_OR_RETURN(
        const ScreenedOutcome outcome,
        many ? screened_->Take(at_.iteration, count) : screened_->TakeOne(at_.iteration, choose));
    const bool ended = !outcome.stepped || !outcome.selected;
    count -= std::ssize(outcome.sums);
    for (const StepSums& sums : outcome.sums) {
      at_.vertex_loss += sums.vertex_loss_change;
      toggled_ += sums.toggled;
      if (ended && &sums == &outcome.sums.back()) break;
      TakeStep(at_, many ? OpenLoopStep<Real>(at_.iteration) : step_size);
      EvaluateVertex(at_, sums.vertex_inner);
    }
    if (ended) return EndEpochInStep(outcome, many ? OpenLoopStep<Real>(at_.iteration) : step_size);
  }
  return absl::OkStatus();
}

// The last iteration goes on on all columns.
template <typename Real>
absl::Status FrankWolfe<Real>::EndEpochInStep(const ScreenedOutcome& outcome, double step_size) {
  if (outcome.stepped) {
    TakeStep(at_, step_size);
    screen_->shared_plan().Widen();
    SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
    return Scan(0);
  }
  SPARSEFW_RETURN_IF_ERROR(LeaveEpoch());
  TakeStep(at_, step_size);
  SPARSEFW_RETURN_IF_ERROR(AdvanceRelaxed(step_size));
  return Scan(step_size);
}

#define SPARSEFW_INSTANTIATE(Real)                                                         \
  template absl::StatusOr<int64_t> FrankWolfe<Real>::ScreenedStepsFrom(const StepRequest&, \
                                                                       int64_t);           \
  template absl::Status FrankWolfe<Real>::AdvanceScreened(const StepRequest&, int64_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
