// Clock, stop signal and deadline of one solve, and what its work costs on this layer, by
// which it knows what will still be ready in time.
#ifndef SPARSEFW_CORE_SRC_SOLVER_LIMITS_H_
#define SPARSEFW_CORE_SRC_SOLVER_LIMITS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

absl::Status CancelledBeforeMask();

// Begins the solve's time. The time of a loss is the layer's, which other solves measure, too.
class Limits {
 public:
  // stop may be null; both references outlive it.
  Limits(std::function<absl::Time()> clock, const StopSignal* stop, absl::Time deadline,
         absl::Duration& loss_time);

  absl::Time now() const { return clock_(); }
  bool stopped() const { return stop_ != nullptr && stop_->requested(); }
  bool past_deadline() const { return now() >= deadline_; }
  // Time of the solve, and of the one that it goes on with.
  absl::Duration Elapsed() const { return elapsed_before_ + (now() - start_); }
  void GoOnAfter(absl::Duration elapsed) { elapsed_before_ = elapsed; }

  // Before there is a mask a stop and a deadline are errors.
  // Errors: Cancelled, DeadlineExceeded
  absl::Status CheckBeforeMask() const;

  // Whether as many evaluations of the loss, or what takes as long, end before the deadline.
  bool TimeForLosses(int count) const { return now() + count * loss_time_ < deadline_; }
  // Whether it does after one more step and a rounding.
  bool TimeForStep() const;
  // As many of `wanted` steps, above 0, as a batch is to have: with a deadline no more than take
  // half of the time that is left, since steps do not all take the same.
  int64_t StepsOfBatch(int64_t wanted) const;

  // Records a step that began at `begin` and has just ended; the slowest loss or rounding counts.
  void StepsEnded(absl::Time begin, int64_t count) { step_time_ = (now() - begin) / count; }
  void RoundingEnded(absl::Time begin) { round_time_ = std::max(round_time_, now() - begin); }
  void LossEnded(absl::Time begin) { loss_time_ = std::max(loss_time_, now() - begin); }

 private:
  const std::function<absl::Time()> clock_;
  const StopSignal* const stop_;
  const absl::Time deadline_;
  const absl::Time start_;
  absl::Duration elapsed_before_;
  std::optional<absl::Duration> step_time_;  // of the last batch
  absl::Duration round_time_;
  absl::Duration& loss_time_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_LIMITS_H_
