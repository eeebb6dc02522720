#include "core/src/solver/limits.h"

#include <algorithm>
#include <utility>

#include "sparsefw/reason.h"

namespace sparsefw {

absl::Status CancelledBeforeMask() {
  return Refuse(absl::StatusCode::kCancelled, "CANCELLED",
                "the solve was cancelled before there was a mask");
}

Limits::Limits(std::function<absl::Time()> clock, const StopSignal* stop, absl::Time deadline,
               absl::Duration& loss_time)
    : clock_(std::move(clock)),
      stop_(stop),
      deadline_(deadline),
      start_(clock_()),
      loss_time_(loss_time) {}

absl::Status Limits::CheckBeforeMask() const {
  if (stopped()) return CancelledBeforeMask();
  if (!past_deadline()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                "the deadline passed before there was a mask");
}

bool Limits::TimeForStep() const {
  return now() + step_time_.value_or(absl::ZeroDuration()) + round_time_ + loss_time_ < deadline_;
}

int64_t Limits::StepsOfBatch(int64_t wanted) const {
  // After a checkpoint nothing has been measured yet.
  if (!step_time_.has_value()) return deadline_ < absl::InfiniteFuture() ? 1 : wanted;
  if (*step_time_ <= absl::ZeroDuration()) return wanted;
  const absl::Duration left = deadline_ - now() - loss_time_ - round_time_;
  const double by_time = absl::FDivDuration(left / 2, *step_time_);  // may be infinite
  return by_time >= static_cast<double>(wanted)
             ? wanted
             : std::max<int64_t>(1, static_cast<int64_t>(by_time));
}

}  // namespace sparsefw
