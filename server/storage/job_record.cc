#include "server/storage/job_record.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/fields/option_fields.h"
#include "server/storage/record_values.h"
#include "sparsefw/options.h"
#include "sparsefw/status_reason.h"

// Every Encode but that of SolveOptions names all fields of its struct in a structured binding: a
// field that is added does not compile until the record keeps it.

namespace sparsefw::server {
namespace {

records::Pattern Encode(const Pattern& pattern) {
  const auto& [kind, sparsity, keep, group] = pattern;
  records::Pattern to;
  to.set_kind(SameNumber<records::PatternKind>(kind));
  to.set_sparsity(sparsity);
  to.set_keep(keep);
  to.set_group(group);
  return to;
}

Pattern Decode(const records::Pattern& from) {
  return {SameNumber<Pattern::Kind>(from.kind()), from.sparsity(), from.keep(), from.group()};
}

// Every option has a field of its name.
records::SolveOptions Encode(const SolveOptions& options) {
  records::SolveOptions to;
  ForEachOption(
      [&](const OptionInfo& info, auto get) { WriteOption(to, info.name, get(options)); });
  *to.mutable_deadline() = ToRecord(options.deadline);
  return to;
}

SolveOptions Decode(const records::SolveOptions& from) {
  SolveOptions options;
  ForEachOption([&](const OptionInfo& info, auto get) {
    ReadOption(FieldAt(from, info.name), info.name, &get(options)).IgnoreError();  // checked before
  });
  options.deadline = TimeOf(from.deadline());
  return options;
}

records::JobSpec Encode(const JobSpec& spec) {
  [[maybe_unused]] const auto& [weight, gram, warm_mask, warm_saliency, pattern, options, priority,
                                deadline, result_ttl, labels, device, return_pruned_weight, sweep,
                                sweep_keep, ends_with_stream, not_kept, traceparent] = spec;
  records::JobSpec to;
  to.set_weight(weight);
  to.set_gram(gram);
  to.set_warm_mask(warm_mask);
  to.set_warm_saliency(warm_saliency);
  *to.mutable_pattern() = Encode(pattern);
  *to.mutable_options() = Encode(options);
  to.set_priority(priority);
  *to.mutable_deadline() = ToRecord(deadline);
  *to.mutable_result_ttl() = ToRecord(result_ttl);
  for (const auto& [key, value] : labels) {
    records::JobSpec::Label& label = *to.add_labels();
    label.set_key(key);
    label.set_value(value);
  }
  to.set_device(device);
  to.set_return_pruned_weight(return_pruned_weight);
  for (const auto& [point_pattern, point_options] : sweep) {
    records::SweepPoint& point = *to.add_sweep();
    *point.mutable_pattern() = Encode(point_pattern);
    *point.mutable_options() = Encode(point_options);
  }
  to.set_sweep_keep(SameNumber<records::SweepKeep>(sweep_keep));
  to.set_ends_with_stream(ends_with_stream);
  to.set_traceparent(traceparent);
  return to;
}

JobSpec Decode(const records::JobSpec& from) {
  JobSpec spec;
  spec.weight = from.weight();
  spec.gram = from.gram();
  spec.warm_mask = from.warm_mask();
  spec.warm_saliency = from.warm_saliency();
  spec.pattern = Decode(from.pattern());
  spec.options = Decode(from.options());
  spec.priority = from.priority();
  spec.deadline = DurationOf(from.deadline());
  spec.result_ttl = DurationOf(from.result_ttl());
  for (const records::JobSpec::Label& label : from.labels()) {
    spec.labels.emplace(label.key(), label.value());
  }
  spec.device = from.device();
  spec.return_pruned_weight = from.return_pruned_weight();
  for (const records::SweepPoint& point : from.sweep()) {
    spec.sweep.push_back({Decode(point.pattern()), Decode(point.options())});
  }
  spec.sweep_keep = SameNumber<SweepKeep>(from.sweep_keep());
  spec.ends_with_stream = from.ends_with_stream();
  spec.traceparent = from.traceparent();
  return spec;
}

records::Progress Encode(const ProgressReport& report) {
  const auto& [iteration, iterations_total, relaxed_loss, gap, step_size, threshold_residual,
               rounded_loss, best_loss, warm_start_loss, lower_bound, swaps, sweep_point, elapsed] =
      report;
  records::Progress to;
  to.set_iteration(iteration);
  to.set_iterations_total(iterations_total);
  to.set_relaxed_loss(relaxed_loss);
  to.set_gap(gap);
  to.set_step_size(step_size);
  to.set_threshold_residual(threshold_residual);
  to.set_rounded_loss(rounded_loss);
  to.set_best_loss(best_loss);
  to.set_warm_start_loss(warm_start_loss);
  to.set_lower_bound(lower_bound);
  to.set_swaps(swaps);
  to.set_sweep_point(sweep_point);
  *to.mutable_elapsed() = ToRecord(elapsed);
  return to;
}

ProgressReport Decode(const records::Progress& from) {
  ProgressReport report;
  report.iteration = from.iteration();
  report.iterations_total = from.iterations_total();
  report.relaxed_loss = from.relaxed_loss();
  report.gap = from.gap();
  report.step_size = from.step_size();
  report.threshold_residual = from.threshold_residual();
  report.rounded_loss = from.rounded_loss();
  report.best_loss = from.best_loss();
  report.warm_start_loss = from.warm_start_loss();
  report.lower_bound = from.lower_bound();
  report.swaps = from.swaps();
  report.sweep_point = from.sweep_point();
  report.elapsed = DurationOf(from.elapsed());
  return report;
}

records::SolveSummary Encode(const SolveSummary& solve) {
  const auto& [kept_count, full_loss, warm_start_loss, relaxed_loss, rounded_loss, final_loss,
               reconstructed_loss, unshrunk, damping, joint, new_weights_loss, lower_bound,
               relative_reduction, iterations, swaps, drift, stop_cause, candidate, load_time,
               solve_time, screening] = solve;
  const auto& [searched, start_loss, reduction, exchanges, converged] = joint;
  records::SolveSummary to;
  if (searched) {
    to.mutable_joint()->set_searched(searched);
    to.mutable_joint()->set_start_loss(start_loss);
    to.mutable_joint()->set_reduction(reduction);
    to.mutable_joint()->set_exchanges(exchanges);
    to.mutable_joint()->set_converged(converged);
  }
  if (new_weights_loss.has_value()) to.set_new_weights_loss(*new_weights_loss);
  if (unshrunk.has_value()) {
    const auto& [full, warm_start, result] = *unshrunk;
    to.mutable_unshrunk()->set_full(full);
    to.mutable_unshrunk()->set_warm_start(warm_start);
    to.mutable_unshrunk()->set_result(result);
  }
  to.set_kept_count(kept_count);
  to.set_full_loss(full_loss);
  to.set_warm_start_loss(warm_start_loss);
  to.set_relaxed_loss(relaxed_loss);
  to.set_rounded_loss(rounded_loss);
  to.set_final_loss(final_loss);
  to.set_reconstructed_loss(reconstructed_loss);
  to.set_damping(damping);
  to.set_lower_bound(lower_bound);
  to.set_relative_reduction(relative_reduction);
  to.set_iterations(iterations);
  to.set_swaps(swaps);
  to.set_drift(drift);
  to.set_stop_cause(SameNumber<records::StopCause>(stop_cause));
  to.set_candidate(SameNumber<records::CandidateKind>(candidate));
  *to.mutable_load_time() = ToRecord(load_time);
  *to.mutable_solve_time() = ToRecord(solve_time);
  to.set_screened_epochs(screening.epochs);
  to.set_screened_iterations(screening.iterations);
  to.set_screened_active_share(screening.active_share);
  return to;
}

SolveSummary Decode(const records::SolveSummary& from) {
  SolveSummary solve;
  solve.kept_count = from.kept_count();
  solve.full_loss = from.full_loss();
  solve.warm_start_loss = from.warm_start_loss();
  solve.relaxed_loss = from.relaxed_loss();
  solve.rounded_loss = from.rounded_loss();
  solve.final_loss = from.final_loss();
  solve.reconstructed_loss = from.reconstructed_loss();
  if (from.has_unshrunk()) {
    solve.unshrunk = {from.unshrunk().full(), from.unshrunk().warm_start(),
                      from.unshrunk().result()};
  }
  solve.damping = from.damping();
  solve.joint = {from.joint().searched(), from.joint().start_loss(), from.joint().reduction(),
                 from.joint().exchanges(), from.joint().converged()};
  if (from.has_new_weights_loss()) solve.new_weights_loss = from.new_weights_loss();
  solve.lower_bound = from.lower_bound();
  solve.relative_reduction = from.relative_reduction();
  solve.iterations = from.iterations();
  solve.swaps = from.swaps();
  solve.drift = from.drift();
  solve.stop_cause = SameNumber<StopCause>(from.stop_cause());
  solve.candidate = SameNumber<CandidateKind>(from.candidate());
  solve.load_time = DurationOf(from.load_time());
  solve.solve_time = DurationOf(from.solve_time());
  solve.screening = {.epochs = from.screened_epochs(),
                     .iterations = from.screened_iterations(),
                     .active_share = from.screened_active_share()};
  return solve;
}

records::JobResult Encode(const JobResult& result) {
  const auto& [mask, pruned_weight, solve, weights_updated, device, queue_time, sweep, best_point,
               incomplete] = result;
  records::JobResult to;
  to.set_mask(mask);
  to.set_pruned_weight(pruned_weight);
  *to.mutable_solve() = Encode(solve);
  to.set_weights_updated(weights_updated);
  to.set_device(device);
  *to.mutable_queue_time() = ToRecord(queue_time);
  for (const auto& [error, point_result] : sweep) {
    records::SweepOutcome& outcome = *to.add_sweep();
    *outcome.mutable_error() = ToRecord(error);
    *outcome.mutable_result() = Encode(point_result);
  }
  to.set_best_point(best_point);
  *to.mutable_incomplete() = ToRecord(incomplete);
  return to;
}

JobResult Decode(const records::JobResult& from) {
  JobResult result;
  result.mask = from.mask();
  result.pruned_weight = from.pruned_weight();
  result.solve = Decode(from.solve());
  result.weights_updated = from.weights_updated();
  result.device = from.device();
  result.queue_time = DurationOf(from.queue_time());
  for (const records::SweepOutcome& outcome : from.sweep()) {
    result.sweep.push_back({StatusOf(outcome.error()), Decode(outcome.result())});
  }
  result.best_point = from.best_point();
  result.incomplete = StatusOf(from.incomplete());
  return result;
}

records::RunMark Encode(const RunMark& mark) {
  const auto& [part, iteration] = mark;
  records::RunMark to;
  to.set_part(part);
  to.set_iteration(iteration);
  return to;
}

RunMark Decode(const records::RunMark& from) { return {from.part(), from.iteration()}; }

records::JobRecord Encode(const Job& job) {
  const auto& [name, spec, state, progress, result, error, revision, state_revision, states,
               create_time, deadline, start_time, end_time, expire_time, queue_position, owner,
               rows, cols, attempts, vain_attempts, reported, saved, alone, cancel_requested,
               request_id] = job;
  const auto& [tenant, owner_name] = owner;
  records::JobRecord to;
  to.set_name(name);
  *to.mutable_spec() = Encode(spec);
  to.set_state(SameNumber<records::JobState>(state));
  if (progress.has_value()) *to.mutable_progress() = Encode(*progress);
  if (result.has_value()) *to.mutable_result() = Encode(*result);
  *to.mutable_error() = ToRecord(error);
  to.set_revision(revision);
  to.set_state_revision(state_revision);
  for (const auto& [past_state, past_revision] : states) {
    records::StateChange& change = *to.add_states();
    change.set_state(SameNumber<records::JobState>(past_state));
    change.set_revision(past_revision);
  }
  *to.mutable_create_time() = ToRecord(create_time);
  *to.mutable_deadline() = ToRecord(deadline);
  *to.mutable_start_time() = ToRecord(start_time);
  *to.mutable_end_time() = ToRecord(end_time);
  *to.mutable_expire_time() = ToRecord(expire_time);
  to.set_queue_position(queue_position);
  to.set_tenant(tenant);
  to.set_owner(owner_name);
  to.set_rows(rows);
  to.set_cols(cols);
  to.set_attempts(attempts);
  to.set_vain_attempts(vain_attempts);
  *to.mutable_reported() = Encode(reported);
  *to.mutable_saved() = Encode(saved);
  to.set_alone(alone);
  to.set_cancel_requested(cancel_requested);
  to.set_request_id(request_id);
  return to;
}

Job Decode(const records::JobRecord& from) {
  Job job;
  job.name = from.name();
  job.spec = Decode(from.spec());
  job.state = SameNumber<JobState>(from.state());
  if (from.has_progress()) job.progress = Decode(from.progress());
  if (from.has_result()) job.result = Decode(from.result());
  job.error = StatusOf(from.error());
  job.revision = from.revision();
  job.state_revision = from.state_revision();
  for (const records::StateChange& change : from.states()) {
    job.states.push_back({SameNumber<JobState>(change.state()), change.revision()});
  }
  job.create_time = TimeOf(from.create_time());
  job.deadline = TimeOf(from.deadline());
  job.start_time = TimeOf(from.start_time());
  job.end_time = TimeOf(from.end_time());
  job.expire_time = TimeOf(from.expire_time());
  job.queue_position = from.queue_position();
  job.owner = {from.tenant(), from.owner()};
  job.rows = from.rows();
  job.cols = from.cols();
  job.attempts = from.attempts();
  job.vain_attempts = from.vain_attempts();
  job.reported = Decode(from.reported());
  job.saved = Decode(from.saved());
  job.alone = from.alone();
  job.cancel_requested = from.cancel_requested();
  job.request_id = from.request_id();
  return job;
}

absl::Status Damaged(std::string_view bytes) {
  return Refuse(absl::StatusCode::kInternal, "STORE_FAILED",
                "the job store holds a record of %d bytes that is damaged", bytes.size());
}

template <typename Record>
absl::Status Parse(std::string_view bytes, Record* record) {
  if (record->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return Damaged(bytes);
}

bool HasKnownValues(const records::SolveOptions& options) {
  bool known = true;
  ForEachOption([&](const OptionInfo& info, auto get) {
    SolveOptions read;
    known = known && ReadOption(FieldAt(options, info.name), info.name, &get(read)).ok();
  });
  return known;
}

// No option may turn into its default: the job would be another one.
bool HasKnownValues(const records::JobSpec& spec) {
  return HasKnownValues(spec.options()) && std::ranges::all_of(spec.sweep(), [](const auto& point) {
           return HasKnownValues(point.options());
         });
}

// Readers take the point of an outcome from the spec without asking.
bool MakesSense(const Job& job) {
  return !job.result.has_value() || job.result->sweep.size() <= job.spec.sweep.size();
}

}  // namespace

std::string EncodeJob(const Job& job) { return Encode(job).SerializeAsString(); }

absl::StatusOr<Job> DecodeJob(std::string_view bytes) {
  records::JobRecord record;
  if (absl::Status status = Parse(bytes, &record); !status.ok()) return status;
  if (!HasKnownValues(record.spec())) return Damaged(bytes);
  Job job = Decode(record);
  if (!MakesSense(job)) return Damaged(bytes);
  return job;
}

std::string EncodeProgress(const JobProgress& progress) {
  records::ProgressRecord record;
  record.set_revision(progress.revision);
  *record.mutable_progress() = Encode(progress.report);
  return record.SerializeAsString();
}

absl::Status DecodeProgress(std::string_view bytes, Job* job) {
  records::ProgressRecord record;
  if (absl::Status status = Parse(bytes, &record); !status.ok()) return status;
  job->revision = record.revision();
  job->progress.reset();
  if (record.has_progress()) job->progress = Decode(record.progress());
  return absl::OkStatus();
}

}  // namespace sparsefw::server
