// Jobs and what came of them to the wire; filters from it.
#include <algorithm>
#include <optional>

#include "server/fields/option_fields.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/status_converter.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

v1::Progress ProgressToProto(const ProgressReport& report) {
  v1::Progress proto;
  proto.set_iteration(report.iteration);
  proto.set_iterations_total(report.iterations_total);
  proto.set_relaxed_loss(report.relaxed_loss);
  proto.set_gap(report.gap);
  proto.set_step_size(report.step_size);
  proto.set_threshold_residual(report.threshold_residual);
  proto.set_rounded_loss(report.rounded_loss);
  proto.set_best_loss(report.best_loss);
  proto.set_warm_start_loss(report.warm_start_loss);
  proto.set_swaps(report.swaps);
  proto.set_sweep_point(report.sweep_point);
  *proto.mutable_elapsed() = ToProto(report.elapsed);
  if (report.iteration > 0) {
    const double left = static_cast<double>(report.iterations_total - report.iteration) /
                        static_cast<double>(report.iteration);
    *proto.mutable_remaining_estimate() = ToProto(report.elapsed * std::max(0.0, left));
  }
  return proto;
}

v1::JobResult NumbersToProto(const JobResult& result) {
  const SolveSummary& solve = result.solve;
  v1::JobResult proto;
  proto.set_mask(result.mask);
  proto.set_pruned_weight(result.pruned_weight);
  proto.set_kept_count(solve.kept_count);
  v1::Losses& losses = *proto.mutable_losses();
  losses.set_full(solve.full_loss);
  losses.set_warm_start(solve.warm_start_loss);
  losses.set_relaxed(solve.relaxed_loss);
  losses.set_rounded(solve.rounded_loss);
  losses.set_mask(solve.final_loss);
  losses.set_lower_bound(solve.lower_bound);
  if (result.weights_updated) losses.set_reconstructed(solve.reconstructed_loss);
  if (solve.unshrunk.has_value()) {
    losses.mutable_unshrunk()->set_full(solve.unshrunk->full);
    losses.mutable_unshrunk()->set_warm_start(solve.unshrunk->warm_start);
    losses.mutable_unshrunk()->set_result(solve.unshrunk->result);
  }
  proto.set_relative_reduction(solve.relative_reduction);
  proto.set_iterations(solve.iterations);
  proto.set_stop_reason(OnWire<v1::StopReason>(solve.stop_cause));
  proto.set_candidate(OnWire<v1::Candidate>(solve.candidate));
  proto.set_device(result.device);
  *proto.mutable_timings()->mutable_queue() = ToProto(result.queue_time);
  *proto.mutable_timings()->mutable_load() = ToProto(solve.load_time);
  *proto.mutable_timings()->mutable_solve() = ToProto(solve.solve_time);
  proto.set_swaps(solve.swaps);
  proto.set_drift(solve.drift);
  if (solve.damping > 0) proto.set_damping(solve.damping);
  if (solve.joint.searched) {
    v1::JointOutcome& joint = *proto.mutable_joint();
    joint.set_start_loss(solve.joint.start_loss);
    joint.set_reduction(solve.joint.reduction);
    joint.set_exchanges(solve.joint.exchanges);
    joint.set_converged(solve.joint.converged);
  }
  if (solve.screening.epochs > 0) {
    v1::Screening& screening = *proto.mutable_screening();
    screening.set_epochs(solve.screening.epochs);
    screening.set_iterations(solve.screening.iterations);
    screening.set_active_share(solve.screening.active_share);
  }
  return proto;
}

v1::JobResult ResultToProto(const JobSpec& spec, const JobResult& result) {
  v1::JobResult proto = NumbersToProto(result);
  for (size_t index = 0; index < result.sweep.size(); ++index) {
    const SweepOutcome& outcome = result.sweep[index];
    v1::SweepOutcome& to = *proto.add_sweep();
    *to.mutable_point() = ToProto(spec.sweep[index]);
    if (outcome.error.ok()) {
      *to.mutable_result() = NumbersToProto(outcome.result);
      const std::optional<double>& new_weights = outcome.result.solve.new_weights_loss;
      if (new_weights.has_value()) to.set_loss_with_new_weights(*new_weights);
    } else {
      *to.mutable_error() = ToRpcStatus(outcome.error);
    }
  }
  proto.set_best_point(result.best_point);
  return proto;
}

bool IsFinite(absl::Time time) {
  return time != absl::InfinitePast() && time != absl::InfiniteFuture();
}

// All but the spec, the owner, the shape, and the fields that only an ended job has.
v1::Job ChangingPartsOf(const Job& job) {
  v1::Job proto;
  proto.set_name(job.name);
  proto.set_state(OnWire<v1::JobState>(job.state));
  if (job.progress.has_value()) *proto.mutable_progress() = ProgressToProto(*job.progress);
  proto.set_revision(job.revision);
  *proto.mutable_create_time() = ToProto(job.create_time);
  if (IsFinite(job.start_time)) *proto.mutable_start_time() = ToProto(job.start_time);
  if (IsFinite(job.end_time)) *proto.mutable_end_time() = ToProto(job.end_time);
  if (IsFinite(job.expire_time)) *proto.mutable_expire_time() = ToProto(job.expire_time);
  proto.set_queue_position(job.queue_position);
  proto.set_attempts(job.attempts);
  return proto;
}

v1::Job ProgressOf(const JobEvent& event) {
  v1::Job proto = ChangingPartsOf(*event.job);
  if (event.progress.has_value()) {
    *proto.mutable_progress() = ProgressToProto(event.progress->report);
  }
  proto.set_revision(event.revision());
  return proto;
}

}  // namespace

absl::StatusOr<JobFilter> FilterFromProto(const v1::ListJobsRequest& proto) {
  JobFilter filter;
  for (const int state : proto.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      return UnknownEnum("states", state);
    }
    const auto converted = static_cast<JobState>(state - 1);
    // A message has room for hundreds of thousands, and each would be part of the query.
    if (std::ranges::find(filter.states, converted) != filter.states.end()) continue;
    filter.states.push_back(converted);
  }
  SPARSEFW_RETURN_IF_ERROR(CheckLabelCount(proto.labels_size()));
  filter.labels.insert(proto.labels().begin(), proto.labels().end());
  return filter;
}

v1::Job ToProto(const Job& job) {
  v1::Job proto = ChangingPartsOf(job);
  *proto.mutable_spec() = ToProto(job.spec);
  if (job.result.has_value()) *proto.mutable_result() = ResultToProto(job.spec, *job.result);
  if (!job.error.ok()) *proto.mutable_error() = ToRpcStatus(job.error);
  proto.set_owner(job.owner.name);
  proto.add_shape(job.rows);
  proto.add_shape(job.cols);
  proto.mutable_preset_overrides()->Assign(job.spec.preset_overrides.begin(),
                                           job.spec.preset_overrides.end());
  return proto;
}

v1::JobEvent ToProto(const JobEvent& event) {
  v1::JobEvent proto;
  proto.set_kind(OnWire<v1::JobEvent::Kind>(event.kind));
  *proto.mutable_job() =
      event.kind == JobEvent::Kind::kProgress ? ProgressOf(event) : ToProto(*event.job);
  return proto;
}

v1::JobEvent HeartbeatAfter(const JobEvent& event) {
  v1::JobEvent proto;
  proto.set_kind(v1::JobEvent::KIND_HEARTBEAT);
  *proto.mutable_job() = ProgressOf(event);
  return proto;
}

}  // namespace sparsefw::server
