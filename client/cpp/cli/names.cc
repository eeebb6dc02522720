#include "client/cpp/cli/names.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"

namespace sparsefw::cli {
namespace {

constexpr std::pair<std::string_view, v1::Method> kMethods[] = {
    {"sparsefw", v1::SPARSEFW},   {"wanda", v1::WANDA},         {"ria", v1::RIA},
    {"magnitude", v1::MAGNITUDE}, {"sparsegpt", v1::SPARSEGPT},
};
constexpr std::pair<std::string_view, v1::StepRule> kStepRules[] = {
    {"open-loop", v1::OPEN_LOOP},
    {"line-search", v1::LINE_SEARCH},
};
constexpr std::pair<std::string_view, v1::ProductPrecision> kPrecisions[] = {
    {"fp32", v1::PRODUCT_FP32},
    {"tf32", v1::PRODUCT_TF32},
    {"bf16", v1::PRODUCT_BF16},
};
constexpr std::pair<std::string_view, v1::JobState> kStates[] = {
    {"queued", v1::QUEUED}, {"running", v1::RUNNING},     {"succeeded", v1::SUCCEEDED},
    {"failed", v1::FAILED}, {"cancelled", v1::CANCELLED},
};

template <typename Value, size_t kCount>
absl::StatusOr<Value> Parse(const std::pair<std::string_view, Value> (&table)[kCount],
                            std::string_view flag, std::string_view text) {
  std::string names;
  for (const auto& [name, value] : table) {
    if (text == name) return value;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return UsageError(absl::StrFormat("%s must be one of %s; got \"%s\"", flag, names, text));
}

template <typename Value, size_t kCount>
std::string Name(const std::pair<std::string_view, Value> (&table)[kCount], Value value) {
  for (const auto& [name, candidate] : table) {
    if (candidate == value) return std::string(name);
  }
  return "unknown";
}

template <typename Value, size_t kCount>
std::string Join(const std::pair<std::string_view, Value> (&table)[kCount]) {
  return absl::StrJoin(table, "|",
                       [](std::string* out, const auto& entry) { out->append(entry.first); });
}

absl::Status PatternError(std::string_view text) {
  return UsageError(absl::StrFormat(
      "--pattern must be unstructured, per-row or A:B with 1 <= A <= B (A of every B are kept); "
      "got \"%s\"",
      text));
}

absl::StatusOr<v1::Pattern> ParseKeepOfGroup(std::string_view text,
                                             std::optional<double> sparsity) {
  const size_t colon = text.find(':');
  int32_t keep = 0;
  int32_t group = 0;
  if (colon == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(text.substr(0, colon)), &keep) ||
      !absl::SimpleAtoi(std::string(text.substr(colon + 1)), &group) || keep < 1 || keep > group) {
    return PatternError(text);
  }
  v1::Pattern pattern;
  pattern.mutable_nm()->set_keep(keep);
  pattern.mutable_nm()->set_group(group);
  const double removed = SparsityOf(pattern);
  if (sparsity && !(std::abs(*sparsity - removed) < 1e-9)) {
    return UsageError(absl::StrFormat("--sparsity must be %g or left out with --pattern %s; got %g",
                                      removed, text, *sparsity));
  }
  return pattern;
}

}  // namespace

std::string MethodNames() { return Join(kMethods); }
std::string SaliencyNames() { return "wanda|ria|magnitude"; }
std::string StepRuleNames() { return Join(kStepRules); }
std::string PrecisionNames() { return Join(kPrecisions); }
std::string JobStateNames() { return Join(kStates); }

absl::StatusOr<v1::Method> ParseMethod(std::string_view flag, std::string_view text) {
  return Parse(kMethods, flag, text);
}
std::string MethodName(v1::Method method) { return Name(kMethods, method); }

absl::StatusOr<v1::StepRule> ParseStepRule(std::string_view flag, std::string_view text) {
  return Parse(kStepRules, flag, text);
}

absl::StatusOr<v1::ProductPrecision> ParsePrecision(std::string_view flag, std::string_view text) {
  return Parse(kPrecisions, flag, text);
}

absl::StatusOr<v1::Pattern> ParsePattern(std::string_view text, std::optional<double> sparsity) {
  const bool unstructured = text == "unstructured";
  if (!unstructured && text != "per-row") return ParseKeepOfGroup(text, sparsity);
  if (!sparsity) {
    return UsageError(absl::StrFormat("--sparsity is required with --pattern %s", text));
  }
  if (!(*sparsity >= 0 && *sparsity <= 1)) {
    return UsageError(absl::StrFormat("--sparsity must be in [0, 1]; got %g", *sparsity));
  }
  v1::Pattern pattern;
  if (unstructured) {
    pattern.mutable_unstructured()->set_sparsity(*sparsity);
  } else {
    pattern.mutable_per_row()->set_sparsity(*sparsity);
  }
  return pattern;
}

std::string PatternName(const v1::Pattern& pattern) {
  switch (pattern.kind_case()) {
    case v1::Pattern::kUnstructured:
      return "unstructured";
    case v1::Pattern::kPerRow:
      return "per-row";
    case v1::Pattern::kNm:
      return absl::StrFormat("%d:%d", pattern.nm().keep(), pattern.nm().group());
    case v1::Pattern::KIND_NOT_SET:
      break;
  }
  return "unknown";
}

double SparsityOf(const v1::Pattern& pattern) {
  switch (pattern.kind_case()) {
    case v1::Pattern::kUnstructured:
      return pattern.unstructured().sparsity();
    case v1::Pattern::kPerRow:
      return pattern.per_row().sparsity();
    case v1::Pattern::kNm:
      return 1.0 - static_cast<double>(pattern.nm().keep()) / pattern.nm().group();
    case v1::Pattern::KIND_NOT_SET:
      break;
  }
  return 0;
}

absl::StatusOr<v1::JobState> ParseJobState(std::string_view flag, std::string_view text) {
  std::string lower(text);
  absl::AsciiStrToLower(&lower);
  return Parse(kStates, flag, lower);
}

std::string JobStateName(v1::JobState state) {
  std::string name = Name(kStates, state);
  absl::AsciiStrToUpper(&name);
  return name;
}

std::string StopReasonName(v1::StopReason why) {
  switch (why) {
    case v1::ITERATIONS:
      return "ITERATIONS";
    case v1::GAP:
      return "GAP";
    case v1::STOPPED_BY_DEADLINE:
      return "DEADLINE";
    case v1::STOPPED_BY_CANCEL:
      return "CANCELLED";
    default:
      return "UNKNOWN";
  }
}

std::string CandidateName(v1::Candidate candidate) {
  switch (candidate) {
    case v1::CANDIDATE_WARM_START:
      return "WARM_START";
    case v1::CANDIDATE_ROUNDED:
      return "ROUNDED";
    case v1::CANDIDATE_REFINED:
      return "REFINED";
    default:
      return "UNKNOWN";
  }
}

absl::StatusOr<absl::Duration> ParseTimeSpan(std::string_view flag, std::string_view text) {
  absl::Duration span;
  if (!absl::ParseDuration(std::string(text), &span) || span <= absl::ZeroDuration() ||
      span > absl::Hours(24 * 365 * 100)) {
    return UsageError(absl::StrFormat(
        "%s must be a time span such as 500ms, 60s, 5m or 1h30m; got \"%s\"", flag, text));
  }
  return span;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

absl::Time FromProto(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

}  // namespace sparsefw::cli
