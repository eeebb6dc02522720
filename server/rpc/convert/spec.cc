// JobSpec to and from the wire.
#include <algorithm>
#include <utility>

#include "server/jobs/job_spec.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/preset.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Bounds of what a job carries about, so that a page of jobs fits a message.
constexpr size_t kMaxLabelKeyBytes = 64;
constexpr size_t kMaxLabelValueBytes = 256;
constexpr size_t kMaxNameBytes = 256;

constexpr int kMaxSweepPoints = 256;

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
    case v1::ALPS:
      return Method::kAlps;
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
    case v1::ALPS:
      return Invalid("OPTION_INVALID", "warm_start.method must be MAGNITUDE, WANDA or RIA; got %s",
                     v1::Method_Name(method));
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

// The defaults of what a spec leaves open.
absl::StatusOr<SolveOptions> DefaultsFromProto(v1::Preset preset) {
  switch (preset) {
    case v1::PRESET_UNSPECIFIED:
    case v1::PAPER:
      return PresetOptions(Preset::kPaper);
    case v1::FAST:
      return PresetOptions(Preset::kFast);
    case v1::BALANCED:
      return PresetOptions(Preset::kBalanced);
    case v1::BEST:
      return PresetOptions(Preset::kBest);
    default:
      return UnknownEnum("preset", preset);
  }
}

v1::StepRule StepRuleToProto(StepRule rule) {
  if (rule == StepRule::kAuto) return v1::AUTO;
  return rule == StepRule::kOpenLoop ? v1::OPEN_LOOP : v1::LINE_SEARCH;
}

absl::StatusOr<StepRule> StepRuleFromProto(v1::StepRule rule, StepRule unset) {
  switch (rule) {
    case v1::STEP_RULE_UNSPECIFIED:
      return unset;
    case v1::OPEN_LOOP:
      return StepRule::kOpenLoop;
    case v1::LINE_SEARCH:
      return StepRule::kLineSearch;
    case v1::AUTO:
      return StepRule::kAuto;
    default:
      return UnknownEnum("sparsefw.step_rule", rule);
  }
}

absl::StatusOr<ProductPrecision> PrecisionFromProto(v1::ProductPrecision precision) {
  switch (precision) {
    case v1::PRODUCT_PRECISION_UNSPECIFIED:
    case v1::PRODUCT_FP32:
      return ProductPrecision::kFloat32;
    case v1::PRODUCT_TF32:
      return ProductPrecision::kTf32;
    case v1::PRODUCT_BF16:
      return ProductPrecision::kBf16;
    default:
      return UnknownEnum("product_precision", precision);
  }
}

v1::ProductPrecision PrecisionToProto(ProductPrecision precision) {
  switch (precision) {
    case ProductPrecision::kFloat32:
      return v1::PRODUCT_FP32;
    case ProductPrecision::kTf32:
      return v1::PRODUCT_TF32;
    case ProductPrecision::kBf16:
      return v1::PRODUCT_BF16;
  }
  return v1::PRODUCT_PRECISION_UNSPECIFIED;
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
  SPARSEFW_ASSIGN_OR_RETURN(options->step_rule,
                            StepRuleFromProto(proto.step_rule(), options->step_rule));
  if (proto.rel_gap() != 0) options->rel_gap = proto.rel_gap();
  if (proto.report_every() != 0) options->report_every = proto.report_every();
  return absl::OkStatus();
}

// Refinement and reconstruction, which follow any method. What a preset brings gives way
// to what is asked for and does not go with it.
void AfterwardsFromProto(const v1::JobSpec& proto, SolveOptions* options) {
  const v1::Refine& refine = proto.refine();
  if (refine.has_swaps()) {
    options->swaps = refine.swaps();
  } else if (HasOwnWeights(options->method)) {
    options->swaps = false;
  }
  if (refine.has_keep_fixed()) options->keep_fixed = refine.keep_fixed();
  if (proto.has_reconstruct()) options->reconstruct = proto.reconstruct();
  if (refine.has_joint()) {
    options->joint = refine.joint();
  } else if (options->reconstruct) {
    options->joint = false;
  }
  if (refine.has_joint_damping()) options->joint_options.damping = refine.joint_damping();
  if (refine.has_joint_excluded()) options->joint_options.excluded = refine.joint_excluded();
}

// What a job asks for by itself or by its preset; the rest depends on other fields.
struct Given {
  bool alpha = false;
  bool joint_excluded = false;
};

// With the joint search alpha has a default of its own.
void ChooseWindow(Given given, const Pattern& pattern, SolveOptions* options) {
  if (!given.alpha) options->alpha = options->joint ? JointAlpha(pattern) : SolveOptions().alpha;
  if (given.joint_excluded) return;
  const double fixed = options->keep_fixed ? options->alpha : 0;
  options->joint_options.excluded =
      options->joint ? JointExcluded(pattern, fixed) : JointOptions().excluded;
}

void SparseGptFromProto(const v1::SparseGptOptions& proto, SparseGptOptions* options) {
  if (proto.has_damping()) options->damping = proto.damping();
  if (proto.block_size() != 0) options->block = proto.block_size();
}

// A point of the sweep is the job's own setting with what the point changes.
absl::StatusOr<SweepPoint> PointFromProto(const v1::SweepPoint& proto, const JobSpec& job,
                                          Given given) {
  SweepPoint point{job.pattern, job.options};
  if (proto.method() != v1::METHOD_UNSPECIFIED) {
    SPARSEFW_ASSIGN_OR_RETURN(point.options.method, MethodFromProto(proto.method(), "method"));
  }
  if (proto.has_pattern()) {
    SPARSEFW_ASSIGN_OR_RETURN(point.pattern, PatternFromProto(proto.pattern()));
  }
  if (proto.has_alpha()) point.options.alpha = proto.alpha();
  if (proto.has_swaps()) point.options.swaps = proto.swaps();
  if (proto.has_reconstruct()) point.options.reconstruct = proto.reconstruct();
  if (proto.has_joint()) point.options.joint = proto.joint();
  given.alpha = given.alpha || proto.has_alpha();
  ChooseWindow(given, point.pattern, &point.options);
  return point;
}

absl::Status SweepFromProto(const v1::Sweep& proto, Given given, JobSpec* spec) {
  if (proto.points_size() > kMaxSweepPoints) {
    return Invalid("OPTION_INVALID", "sweep.points must be at most %d; got %d", kMaxSweepPoints,
                   proto.points_size());
  }
  switch (proto.keep()) {
    case v1::Sweep::KEEP_UNSPECIFIED:
    case v1::Sweep::BEST:
      spec->sweep_keep = SweepKeep::kBest;
      break;
    case v1::Sweep::ALL:
      spec->sweep_keep = SweepKeep::kAll;
      break;
    default:
      return UnknownEnum("sweep.keep", proto.keep());
  }
  for (int index = 0; index < proto.points_size(); ++index) {
    absl::StatusOr<SweepPoint> point = PointFromProto(proto.points(index), *spec, given);
    if (!point.ok()) return AtPoint(static_cast<size_t>(index), point.status());
    point->options.measure_new_weights =
        !proto.has_new_weights_losses() || proto.new_weights_losses();
    spec->sweep.push_back(*std::move(point));
  }
  return absl::OkStatus();
}

void SweepToProto(const JobSpec& spec, v1::JobSpec* proto) {
  if (spec.sweep.empty()) return;
  for (const SweepPoint& point : spec.sweep) {
    *proto->mutable_sweep()->add_points() = ToProto(point);
  }
  proto->mutable_sweep()->set_new_weights_losses(spec.sweep.front().options.measure_new_weights);
  proto->mutable_sweep()->set_keep(spec.sweep_keep == SweepKeep::kAll ? v1::Sweep::ALL
                                                                      : v1::Sweep::BEST);
}

// A sweep whose points all bring a pattern needs none of the job.
bool PatternMissing(const v1::JobSpec& proto) {
  if (proto.has_pattern()) return false;
  const auto& points = proto.sweep().points();
  return points.empty() || !std::all_of(points.begin(), points.end(),
                                        [](const auto& point) { return point.has_pattern(); });
}

absl::Status CheckTexts(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckLength("weight", proto.weight(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLength("gram", proto.gram(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(
      CheckLength("warm_start.mask", proto.warm_start().mask(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(
      CheckLength("warm_start.saliency", proto.warm_start().saliency(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLength("device", proto.device(), kMaxNameBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLabelCount(proto.labels_size()));
  for (const auto& [key, value] : proto.labels()) {
    SPARSEFW_RETURN_IF_ERROR(CheckLength("a label's key", key, kMaxLabelKeyBytes));
    SPARSEFW_RETURN_IF_ERROR(
        CheckLength(absl::StrFormat("label %s", key), value, kMaxLabelValueBytes));
  }
  return absl::OkStatus();
}

}  // namespace

v1::SweepPoint ToProto(const SweepPoint& point) {
  v1::SweepPoint proto;
  proto.set_method(ToProto(point.options.method));
  *proto.mutable_pattern() = PatternToProto(point.pattern);
  proto.set_alpha(point.options.alpha);
  proto.set_swaps(point.options.swaps);
  proto.set_reconstruct(point.options.reconstruct);
  proto.set_joint(point.options.joint);
  return proto;
}

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
    case Method::kAlps:
      return v1::ALPS;
  }
  return v1::METHOD_UNSPECIFIED;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckTexts(proto));
  JobSpec spec;
  spec.weight = proto.weight();
  spec.gram = proto.gram();
  SPARSEFW_ASSIGN_OR_RETURN(spec.options, DefaultsFromProto(proto.preset()));
  if (proto.method() != v1::METHOD_UNSPECIFIED) {
    SPARSEFW_ASSIGN_OR_RETURN(spec.options.method, MethodFromProto(proto.method(), "method"));
  }
  if (proto.has_pattern() || PatternMissing(proto)) {
    SPARSEFW_ASSIGN_OR_RETURN(spec.pattern, PatternFromProto(proto.pattern()));
  }
  SPARSEFW_RETURN_IF_ERROR(WarmStartFromProto(proto.warm_start(), &spec));
  SPARSEFW_RETURN_IF_ERROR(OptionsFromProto(proto.sparsefw(), &spec.options));
  if (proto.has_shrinkage()) spec.options.shrinkage = proto.shrinkage();
  AfterwardsFromProto(proto, &spec.options);
  const Given given = {
      .alpha = proto.preset() != v1::PRESET_UNSPECIFIED || proto.sparsefw().has_alpha(),
      .joint_excluded = proto.preset() == v1::BEST || proto.refine().has_joint_excluded()};
  ChooseWindow(given, spec.pattern, &spec.options);
  SparseGptFromProto(proto.sparsegpt(), &spec.options.sparsegpt);
  // Before the sweep, whose points take over what is the job's.
  SPARSEFW_ASSIGN_OR_RETURN(spec.options.product_precision,
                            PrecisionFromProto(proto.product_precision()));
  SPARSEFW_RETURN_IF_ERROR(SweepFromProto(proto.sweep(), given, &spec));
  if (!proto.has_pattern()) spec.pattern = spec.sweep.front().pattern;
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

  proto.set_shrinkage(spec.options.shrinkage);
  v1::SparseFwOptions& options = *proto.mutable_sparsefw();
  options.set_alpha(spec.options.alpha);
  options.set_iterations(spec.options.iterations);
  options.set_step_rule(StepRuleToProto(spec.options.step_rule));
  options.set_rel_gap(spec.options.rel_gap);
  options.set_report_every(spec.options.report_every);
  proto.mutable_refine()->set_swaps(spec.options.swaps);
  proto.mutable_refine()->set_keep_fixed(spec.options.keep_fixed);
  proto.mutable_refine()->set_joint(spec.options.joint);
  proto.mutable_refine()->set_joint_damping(spec.options.joint_options.damping);
  proto.mutable_refine()->set_joint_excluded(spec.options.joint_options.excluded);
  proto.set_reconstruct(spec.options.reconstruct);
  proto.mutable_sparsegpt()->set_damping(spec.options.sparsegpt.damping);
  proto.mutable_sparsegpt()->set_block_size(static_cast<int32_t>(spec.options.sparsegpt.block));
  proto.set_product_precision(PrecisionToProto(spec.options.product_precision));
  SweepToProto(spec, &proto);

  proto.set_priority(spec.priority);
  if (spec.deadline != absl::InfiniteDuration()) *proto.mutable_deadline() = ToProto(spec.deadline);
  *proto.mutable_result_ttl() = ToProto(spec.result_ttl);
  proto.mutable_labels()->insert(spec.labels.begin(), spec.labels.end());
  proto.set_device(spec.device);
  proto.set_return_pruned_weight(spec.return_pruned_weight);
  return proto;
}

}  // namespace sparsefw::server
