#include "client/cpp/cli/flags/names.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace sparsefw::cli {
namespace {

// The words of the CLI are the names of the protocol's enums without `prefix`, in
// lower case and with hyphens; number 0 is never a choice.
std::string WordOf(const google::protobuf::EnumValueDescriptor& value, size_t prefix) {
  std::string word = absl::AsciiStrToLower(value.name().substr(prefix));
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

template <typename Enum>
std::vector<std::string> Words(std::string_view prefix = "") {
  const auto& descriptor = *google::protobuf::GetEnumDescriptor<Enum>();
  std::vector<std::string> words;
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const auto& value = *descriptor.value(i);
    if (value.number() != 0) words.push_back(WordOf(value, prefix.size()));
  }
  return words;
}

template <typename Enum>
std::string Name(Enum value, std::string_view prefix = "") {
  const auto* found = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return found == nullptr || value == 0 ? "unknown" : WordOf(*found, prefix.size());
}

template <typename Enum>
absl::StatusOr<Enum> Parse(std::string_view flag, std::string_view text,
                           std::string_view prefix = "") {
  const auto& descriptor = *google::protobuf::GetEnumDescriptor<Enum>();
  for (int i = 0; i < descriptor.value_count(); ++i) {
    const auto& value = *descriptor.value(i);
    if (value.number() != 0 && WordOf(value, prefix.size()) == text) {
      return static_cast<Enum>(value.number());
    }
  }
  return UsageError(absl::StrFormat("%s must be one of %s; got \"%s\"", flag,
                                    absl::StrJoin(Words<Enum>(prefix), ", "), text));
}

std::string Upper(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  absl::AsciiStrToUpper(&word);
  return word;
}

constexpr std::string_view kPrecisionPrefix = "PRODUCT_";
constexpr std::string_view kCandidatePrefix = "CANDIDATE_";

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

std::string MethodNames() { return absl::StrJoin(Words<v1::Method>(), "|"); }
std::string PresetNames() { return absl::StrJoin(Words<v1::Preset>(), "|"); }
std::string SaliencyNames() { return "wanda|ria|magnitude"; }
std::string StepRuleNames() { return absl::StrJoin(Words<v1::StepRule>(), "|"); }
std::string PrecisionNames() {
  return absl::StrJoin(Words<v1::ProductPrecision>(kPrecisionPrefix), "|");
}
std::string JobStateNames() { return absl::StrJoin(Words<v1::JobState>(), "|"); }

absl::StatusOr<v1::Method> ParseMethod(std::string_view flag, std::string_view text) {
  return Parse<v1::Method>(flag, text);
}
absl::StatusOr<v1::Preset> ParsePreset(std::string_view flag, std::string_view text) {
  return Parse<v1::Preset>(flag, text);
}
std::string MethodName(v1::Method method) { return Name(method); }

absl::StatusOr<v1::StepRule> ParseStepRule(std::string_view flag, std::string_view text) {
  return Parse<v1::StepRule>(flag, text);
}

absl::StatusOr<v1::ProductPrecision> ParsePrecision(std::string_view flag, std::string_view text) {
  return Parse<v1::ProductPrecision>(flag, text, kPrecisionPrefix);
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
  return Parse<v1::JobState>(flag, lower);
}

std::string JobStateName(v1::JobState state) { return Upper(Name(state)); }

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
  return Upper(Name(candidate, kCandidatePrefix));
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
