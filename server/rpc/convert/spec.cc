// JobSpec to and from the wire.
#include <algorithm>
#include <string_view>
#include <utility>

#include "server/fields/option_fields.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/options.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Bounds of what a job carries about, so that a page of jobs fits a message.
constexpr size_t kMaxLabelKeyBytes = 64;
constexpr size_t kMaxLabelValueBytes = 256;
constexpr size_t kMaxNameBytes = 256;

constexpr int kMaxSweepPoints = 256;

// Reads the options that `message` sets. Its fields have the options' names.
absl::Status ReadOptions(const google::protobuf::Message& message, bool flat,
                         OptionRequest* request) {
  absl::Status status;
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (info.path.empty() || !status.ok()) return;
    const std::string_view path = flat ? info.name : info.path;
    const absl::StatusOr<bool> given =
        ReadOption(FieldIfSet(message, path), path, &get(request->options));
    if (!given.ok()) {
      status = given.status();
    } else if (*given) {
      request->given.insert(info.name);
    }
  });
  return status;
}

void WriteOptions(const SolveOptions& options, bool flat, google::protobuf::Message& message) {
  ForEachOption([&](const OptionInfo& info, auto get) {
    if (!info.path.empty()) WriteOption(message, flat ? info.name : info.path, get(options));
  });
}

absl::Status PresetFromProto(const v1::JobSpec& proto, OptionRequest* request) {
  Preset preset = Preset::kPaper;
  SPARSEFW_ASSIGN_OR_RETURN(const bool given,
                            ReadOption(FieldIfSet(proto, "preset"), "preset", &preset));
  if (given) request->preset = preset;
  return absl::OkStatus();
}

absl::Status SparsityMissing(std::string_view kind) {
  return Invalid("PATTERN_INVALID", "pattern.%s.sparsity must be set, in [0, 1]; got nothing",
                 kind);
}

absl::StatusOr<Pattern> PatternFromProto(const v1::Pattern& pattern) {
  switch (pattern.kind_case()) {
    case v1::Pattern::kUnstructured:
      if (!pattern.unstructured().has_sparsity()) return SparsityMissing("unstructured");
      return Pattern::Unstructured(pattern.unstructured().sparsity());
    case v1::Pattern::kPerRow:
      if (!pattern.per_row().has_sparsity()) return SparsityMissing("per_row");
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

// A point of the sweep is the job's own setting with what the point changes. Only the window of the
// joint search is chosen anew, where the job leaves it open.
absl::StatusOr<SweepPoint> PointFromProto(const v1::SweepPoint& proto, const JobSpec& job,
                                          OptionRequest request) {
  Pattern pattern = job.pattern;
  request.options = job.options;
  ForEachOption([&](const OptionInfo& info, auto) {
    if (info.name != "alpha" && info.name != "joint_excluded") request.given.insert(info.name);
  });
  if (proto.has_pattern()) {
    SPARSEFW_ASSIGN_OR_RETURN(pattern, PatternFromProto(proto.pattern()));
  }
  SPARSEFW_RETURN_IF_ERROR(ReadOptions(proto, true, &request));
  return SweepPoint{pattern, ResolveOptions(request, pattern)};
}

absl::Status SweepFromProto(const v1::Sweep& proto, const OptionRequest& request, JobSpec* spec) {
  if (proto.points_size() > kMaxSweepPoints) {
    return Invalid("OPTION_INVALID", "sweep.points must be at most %d; got %d", kMaxSweepPoints,
                   proto.points_size());
  }
  switch (proto.keep()) {
    case v1::Sweep::KEEP_UNSPECIFIED:
    case v1::Sweep::KEEP_BEST:
      spec->sweep_keep = SweepKeep::kBest;
      break;
    case v1::Sweep::KEEP_ALL:
      spec->sweep_keep = SweepKeep::kAll;
      break;
    default:
      return UnknownEnum("sweep.keep", proto.keep());
  }
  for (int index = 0; index < proto.points_size(); ++index) {
    absl::StatusOr<SweepPoint> point = PointFromProto(proto.points(index), *spec, request);
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
  proto->mutable_sweep()->set_keep(spec.sweep_keep == SweepKeep::kAll ? v1::Sweep::KEEP_ALL
                                                                      : v1::Sweep::KEEP_BEST);
}

// A sweep whose points all bring a pattern needs none of the job.
bool PatternMissing(const v1::JobSpec& proto) {
  if (proto.has_pattern()) return false;
  const auto& points = proto.sweep().points();
  return points.empty() || !std::all_of(points.begin(), points.end(),
                                        [](const auto& point) { return point.has_pattern(); });
}

// Errors and logs repeat names.
absl::Status CheckName(std::string_view field, std::string_view name) {
  SPARSEFW_RETURN_IF_ERROR(CheckLength("TEXT_TOO_LONG", field, name, kMaxNameBytes));
  return CheckNoControls("SPEC_INVALID", field, name);
}

absl::Status CheckTexts(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckName("weight", proto.weight()));
  SPARSEFW_RETURN_IF_ERROR(CheckName("gram", proto.gram()));
  SPARSEFW_RETURN_IF_ERROR(CheckName("warm_start.mask", proto.warm_start().mask()));
  SPARSEFW_RETURN_IF_ERROR(CheckName("warm_start.saliency", proto.warm_start().saliency()));
  SPARSEFW_RETURN_IF_ERROR(CheckName("device", proto.device()));
  SPARSEFW_RETURN_IF_ERROR(CheckLabelCount(proto.labels_size()));
  for (const auto& [key, value] : proto.labels()) {
    SPARSEFW_RETURN_IF_ERROR(CheckLength("TEXT_TOO_LONG", "a label's key", key, kMaxLabelKeyBytes));
    SPARSEFW_RETURN_IF_ERROR(
        CheckLength("TEXT_TOO_LONG", absl::StrFormat("label %s", key), value, kMaxLabelValueBytes));
  }
  return absl::OkStatus();
}

// Whether anything names a method or an option of one, also where PresetOf does not see it: a point
// of the sweep, or a mask or scores to start from.
bool NamesAnOption(const v1::JobSpec& proto) {
  if (!proto.warm_start().mask().empty() || !proto.warm_start().saliency().empty()) return true;
  const auto& points = proto.sweep().points();
  return std::any_of(points.begin(), points.end(), [](v1::SweepPoint point) {
    point.clear_pattern();
    return point.ByteSizeLong() > 0;
  });
}

}  // namespace

v1::SweepPoint ToProto(const SweepPoint& point) {
  v1::SweepPoint proto;
  WriteOptions(point.options, true, proto);
  *proto.mutable_pattern() = PatternToProto(point.pattern);
  return proto;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto) {
  SPARSEFW_RETURN_IF_ERROR(CheckTexts(proto));
  JobSpec spec;
  spec.weight = proto.weight();
  spec.gram = proto.gram();
  spec.warm_mask = proto.warm_start().mask();
  spec.warm_saliency = proto.warm_start().saliency();
  OptionRequest request;
  SPARSEFW_RETURN_IF_ERROR(PresetFromProto(proto, &request));
  SPARSEFW_RETURN_IF_ERROR(ReadOptions(proto, false, &request));
  const bool asked = request.preset.has_value();
  if (!asked && NamesAnOption(proto)) request.preset = Preset::kPaper;
  request.preset = PresetOf(request);
  // Where a method or an option is named, nobody chose the defaults as a preset.
  if (asked || *request.preset != Preset::kPaper) spec.preset = request.preset;
  for (const std::string_view name : request.given) {
    if (asked && IsOfMethod(name)) spec.preset_overrides.emplace_back(name);
  }
  if (proto.has_pattern() || PatternMissing(proto)) {
    SPARSEFW_ASSIGN_OR_RETURN(spec.pattern, PatternFromProto(proto.pattern()));
  }
  spec.options = ResolveOptions(request, spec.pattern);
  spec.shrinks_by_tokens = ShrinksByTokens(request);
  SPARSEFW_RETURN_IF_ERROR(SweepFromProto(proto.sweep(), request, &spec));
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
  WriteOptions(spec.options, false, proto);
  if (spec.preset) WriteOption(proto, "preset", *spec.preset);
  *proto.mutable_pattern() = PatternToProto(spec.pattern);
  // The mask, the saliency and the method are alternatives.
  if (!spec.warm_mask.empty()) {
    proto.mutable_warm_start()->set_mask(spec.warm_mask);
  } else if (!spec.warm_saliency.empty()) {
    proto.mutable_warm_start()->set_saliency(spec.warm_saliency);
  }
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
