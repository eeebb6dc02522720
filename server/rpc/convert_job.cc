#include <algorithm>
#include <cmath>

#include "server/rpc/convert.h"
#include "server/rpc/convert_common.h"
#include "server/rpc/status_converter.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Bounds of what a job carries about, so that a page of jobs fits a message.
constexpr int kMaxLabels = 64;
constexpr size_t kMaxLabelKeyBytes = 64;
constexpr size_t kMaxLabelValueBytes = 256;
constexpr size_t kMaxNameBytes = 256;

absl::StatusOr<Method> MethodFromProto(v1::Method method, std::string_view field) {
  switch (method) {
    case v1::METHOD_UNSPECIFIED:
    case v1::SPARSEFW:
      return Method::kSparseFw;
    case v1::MAGNITUDE:
      return Method::kMagnitude;
    case v1::WANDA:
      return Method::kWanda;
    case v1::RIA:
      return Method::kRia;
    case v1::SPARSEGPT:
      return Method::kSparseGpt;
    default:
      return UnknownEnum(field, method);
  }
}

absl::StatusOr<SaliencyMethod> SaliencyFromProto(v1::Method method) {
  switch (method) {
    case v1::METHOD_UNSPECIFIED:
    case v1::WANDA:
      return SaliencyMethod::kWanda;
    case v1::MAGNITUDE:
      return SaliencyMethod::kMagnitude;
    case v1::RIA:
      return SaliencyMethod::kRia;
    case v1::SPARSEFW:
    case v1::SPARSEGPT:
      return Invalid("OPTION_INVALID",
                     absl::StrFormat("warm_start.method must be MAGNITUDE, WANDA or RIA; got %s",
                                     v1::Method_Name(method)));
    default:
      return UnknownEnum("warm_start.method", method);
  }
}

v1::Method SaliencyToProto(SaliencyMethod method) {
  switch (method) {
    case SaliencyMethod::kMagnitude:
      return v1::MAGNITUDE;
    case SaliencyMethod::kWanda:
      return v1::WANDA;
    case SaliencyMethod::kRia:
      return v1::RIA;
  }
  return v1::METHOD_UNSPECIFIED;
}

absl::StatusOr<StepRule> StepRuleFromProto(v1::StepRule rule) {
  switch (rule) {
    case v1::STEP_RULE_UNSPECIFIED:
    case v1::OPEN_LOOP:
      return StepRule::kOpenLoop;
    case v1::LINE_SEARCH:
      return StepRule::kLineSearch;
    default:
      return UnknownEnum("sparsefw.step_rule", rule);
  }
}

absl::StatusOr<Pattern> PatternFromProto(const v1::Pattern& pattern) {
  switch (pattern.kind_case()) {
    case v1::Pattern::kUnstructured:
      return Pattern::Unstructured(pattern.unstructured().sparsity());
    case v1::Pattern::kPerRow:
      return Pattern::PerRow(pattern.per_row().sparsity());
    case v1::Pattern::kNm:
      return Pattern::KeepOfGroup(pattern.nm().keep(), pattern.nm().group());
    case v1::Pattern::KIND_NOT_SET:
      break;
  }
  return Invalid("PATTERN_INVALID",
                 "pattern must be unstructured, per_row or nm; got none of them");
}

v1::Pattern PatternToProto(const Pattern& pattern) {
  v1::Pattern proto;
  switch (pattern.kind) {
    case Pattern::Kind::kUnstructured:
      proto.mutable_unstructured()->set_sparsity(pattern.sparsity);
      break;
    case Pattern::Kind::kPerRow:
      proto.mutable_per_row()->set_sparsity(pattern.sparsity);
      break;
    case Pattern::Kind::kKeepOfGroup:
      proto.mutable_nm()->set_keep(pattern.keep);
      proto.mutable_nm()->set_group(pattern.group);
      break;
  }
  return proto;
}

absl::Status WarmStartFromProto(const v1::WarmStart& proto, JobSpec* spec) {
  switch (proto.source_case()) {
    case v1::WarmStart::kMethod: {
      SPARSEFW_ASSIGN_OR_RETURN(spec->options.warm_start.method, SaliencyFromProto(proto.method()));
      break;
    }
    case v1::WarmStart::kMask:
      spec->warm_mask = proto.mask();
      break;
    case v1::WarmStart::kSaliency:
      spec->warm_saliency = proto.saliency();
      break;
    case v1::WarmStart::SOURCE_NOT_SET:
      break;
  }
  if (proto.has_ria_exponent()) spec->options.warm_start.ria_exponent = proto.ria_exponent();
  return absl::OkStatus();
}

absl::Status OptionsFromProto(const v1::SparseFwOptions& proto, SolveOptions* options) {
  if (proto.has_alpha()) options->alpha = proto.alpha();
  if (proto.has_iterations()) options->iterations = proto.iterations();
  SPARSEFW_ASSIGN_OR_RETURN(options->step_rule, StepRuleFromProto(proto.step_rule()));
  options->rel_gap = proto.rel_gap();
  if (proto.report_every() != 0) options->report_every = proto.report_every();
  options->swaps = proto.refine().swaps();
  if (proto.refine().has_keep_fixed()) options->keep_fixed = proto.refine().keep_fixed();
  options->reconstruct = proto.reconstruct();
  return absl::OkStatus();
}

absl::Status CheckTexts(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckLength("weight", proto.weight(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLength("gram", proto.gram(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(
      CheckLength("warm_start.mask", proto.warm_start().mask(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(
      CheckLength("warm_start.saliency", proto.warm_start().saliency(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLength("device", proto.device(), kMaxNameBytes));
  if (proto.labels_size() > kMaxLabels) {
    return Invalid("LABELS_INVALID", absl::StrFormat("labels must be at most %d; got %d",
                                                     kMaxLabels, proto.labels_size()));
  }
  for (const auto& [key, value] : proto.labels()) {
    SPARSEFW_RETURN_IF_ERROR(CheckLength("a label's key", key, kMaxLabelKeyBytes));
    SPARSEFW_RETURN_IF_ERROR(
        CheckLength(absl::StrFormat("label %s", key), value, kMaxLabelValueBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobState> StateFromProto(int state) {
  switch (state) {
    case v1::QUEUED:
      return JobState::kQueued;
    case v1::RUNNING:
      return JobState::kRunning;
    case v1::SUCCEEDED:
      return JobState::kSucceeded;
    case v1::FAILED:
      return JobState::kFailed;
    case v1::CANCELLED:
      return JobState::kCancelled;
    default:
      return UnknownEnum("states", state);
  }
}

v1::JobState StateToProto(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return v1::QUEUED;
    case JobState::kRunning:
      return v1::RUNNING;
    case JobState::kSucceeded:
      return v1::SUCCEEDED;
    case JobState::kFailed:
      return v1::FAILED;
    case JobState::kCancelled:
      return v1::CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::StopReason StopToProto(StopCause cause) {
  switch (cause) {
    case StopCause::kIterations:
      return v1::ITERATIONS;
    case StopCause::kGap:
      return v1::GAP;
    case StopCause::kDeadline:
      return v1::STOPPED_BY_DEADLINE;
    case StopCause::kCancelled:
      return v1::STOPPED_BY_CANCEL;
  }
  return v1::STOP_REASON_UNSPECIFIED;
}

v1::Candidate CandidateToProto(CandidateKind kind) {
  switch (kind) {
    case CandidateKind::kWarmStart:
      return v1::CANDIDATE_WARM_START;
    case CandidateKind::kRounded:
      return v1::CANDIDATE_ROUNDED;
    case CandidateKind::kRefined:
      return v1::CANDIDATE_REFINED;
  }
  return v1::CANDIDATE_UNSPECIFIED;
}

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
  *proto.mutable_elapsed() = ToProto(report.elapsed);
  if (report.iteration > 0) {
    const double left = static_cast<double>(report.iterations_total - report.iteration) /
                        static_cast<double>(report.iteration);
    *proto.mutable_remaining_estimate() = ToProto(report.elapsed * std::max(0.0, left));
  }
  return proto;
}

v1::JobResult ResultToProto(const JobResult& result) {
  const SolveResult& solve = result.solve;
  v1::JobResult proto;
  proto.set_mask(result.mask);
  proto.set_pruned_weight(result.pruned_weight);
  proto.set_kept_count(solve.kept_count);
  v1::Losses& losses = *proto.mutable_losses();
  losses.set_full(solve.full_loss);
  losses.set_warm_start(solve.warm_start_loss);
  losses.set_relaxed(solve.relaxed_loss);
  losses.set_rounded(solve.rounded_loss);
  losses.set_final(solve.final_loss);
  losses.set_lower_bound(solve.lower_bound);
  proto.set_relative_reduction(solve.relative_reduction);
  proto.set_iterations(solve.iterations);
  proto.set_stop_reason(StopToProto(solve.stop_cause));
  proto.set_candidate(CandidateToProto(solve.candidate));
  proto.set_device(result.device);
  *proto.mutable_timings()->mutable_queue() = ToProto(result.queue_time);
  *proto.mutable_timings()->mutable_load() = ToProto(solve.load_time);
  *proto.mutable_timings()->mutable_solve() = ToProto(solve.solve_time);
  return proto;
}

bool IsFinite(absl::Time time) {
  return time != absl::InfinitePast() && time != absl::InfiniteFuture();
}

}  // namespace

v1::Method ToProto(Method method) {
  switch (method) {
    case Method::kMagnitude:
      return v1::MAGNITUDE;
    case Method::kWanda:
      return v1::WANDA;
    case Method::kRia:
      return v1::RIA;
    case Method::kSparseGpt:
      return v1::SPARSEGPT;
    case Method::kSparseFw:
      return v1::SPARSEFW;
  }
  return v1::METHOD_UNSPECIFIED;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckTexts(proto));
  JobSpec spec;
  spec.weight = proto.weight();
  spec.gram = proto.gram();
  SPARSEFW_ASSIGN_OR_RETURN(spec.options.method, MethodFromProto(proto.method(), "method"));
  SPARSEFW_ASSIGN_OR_RETURN(spec.pattern, PatternFromProto(proto.pattern()));
  SPARSEFW_RETURN_IF_ERROR(WarmStartFromProto(proto.warm_start(), &spec));
  SPARSEFW_RETURN_IF_ERROR(OptionsFromProto(proto.sparsefw(), &spec.options));
  spec.priority = proto.priority();
  if (proto.has_deadline()) {
    SPARSEFW_ASSIGN_OR_RETURN(spec.deadline, FromProto(proto.deadline(), "deadline"));
  }
  if (proto.has_result_ttl()) {
    SPARSEFW_ASSIGN_OR_RETURN(spec.result_ttl, FromProto(proto.result_ttl(), "result_ttl"));
  }
  spec.labels.insert(proto.labels().begin(), proto.labels().end());
  spec.device = proto.device();
  spec.return_pruned_weight = proto.return_pruned_weight();
  return spec;
}

absl::StatusOr<JobFilter> FilterFromProto(const v1::ListJobsRequest& proto) {
  JobFilter filter;
  for (const int state : proto.states()) {
    SPARSEFW_ASSIGN_OR_RETURN(const JobState converted, StateFromProto(state));
    filter.states.push_back(converted);
  }
  filter.labels.insert(proto.labels().begin(), proto.labels().end());
  return filter;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec proto;
  proto.set_weight(spec.weight);
  proto.set_gram(spec.gram);
  proto.set_method(ToProto(spec.options.method));
  *proto.mutable_pattern() = PatternToProto(spec.pattern);

  v1::WarmStart& warm = *proto.mutable_warm_start();
  if (!spec.warm_mask.empty()) {
    warm.set_mask(spec.warm_mask);
  } else if (!spec.warm_saliency.empty()) {
    warm.set_saliency(spec.warm_saliency);
  } else {
    warm.set_method(SaliencyToProto(spec.options.warm_start.method));
  }
  warm.set_ria_exponent(spec.options.warm_start.ria_exponent);

  v1::SparseFwOptions& options = *proto.mutable_sparsefw();
  options.set_alpha(spec.options.alpha);
  options.set_iterations(spec.options.iterations);
  options.set_step_rule(spec.options.step_rule == StepRule::kOpenLoop ? v1::OPEN_LOOP
                                                                      : v1::LINE_SEARCH);
  options.set_rel_gap(spec.options.rel_gap);
  options.set_report_every(spec.options.report_every);
  options.mutable_refine()->set_swaps(spec.options.swaps);
  options.mutable_refine()->set_keep_fixed(spec.options.keep_fixed);
  options.set_reconstruct(spec.options.reconstruct);

  proto.set_priority(spec.priority);
  if (spec.deadline != absl::InfiniteDuration()) *proto.mutable_deadline() = ToProto(spec.deadline);
  *proto.mutable_result_ttl() = ToProto(spec.result_ttl);
  proto.mutable_labels()->insert(spec.labels.begin(), spec.labels.end());
  proto.set_device(spec.device);
  proto.set_return_pruned_weight(spec.return_pruned_weight);
  return proto;
}

v1::Job ToProto(const Job& job) {
  v1::Job proto;
  proto.set_name(job.name);
  *proto.mutable_spec() = ToProto(job.spec);
  proto.set_state(StateToProto(job.state));
  if (job.progress.has_value()) *proto.mutable_progress() = ProgressToProto(*job.progress);
  if (job.result.has_value()) *proto.mutable_result() = ResultToProto(*job.result);
  if (!job.error.ok()) *proto.mutable_error() = ToRpcStatus(job.error);
  proto.set_revision(job.revision);
  *proto.mutable_create_time() = ToProto(job.create_time);
  if (IsFinite(job.start_time)) *proto.mutable_start_time() = ToProto(job.start_time);
  if (IsFinite(job.end_time)) *proto.mutable_end_time() = ToProto(job.end_time);
  if (IsFinite(job.expire_time)) *proto.mutable_expire_time() = ToProto(job.expire_time);
  proto.set_queue_position(job.queue_position);
  proto.set_owner(job.owner);
  proto.add_shape(job.rows);
  proto.add_shape(job.cols);
  return proto;
}

}  // namespace sparsefw::server
