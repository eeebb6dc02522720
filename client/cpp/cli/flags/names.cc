#include "client/cpp/cli/flags/names.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "sparsefw/client/enum_names.h"

namespace sparsefw::cli {
namespace {

template <typename Enum>
std::string Name(Enum value) {
  const auto* found = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return found == nullptr || value == 0 ? "unknown" : EnumWord(*found);
}

std::string Upper(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  absl::AsciiStrToUpper(&word);
  return word;
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

std::string EnumWord(const google::protobuf::EnumValueDescriptor& value) {
  std::string word = absl::AsciiStrToLower(client::ShortName(value));
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

std::string MethodName(v1::Method method) { return Name(method); }

std::string PresetName(v1::Preset preset) { return Name(preset); }

absl::StatusOr<double> ParseShare(std::string_view flag, std::string_view text) {
  double share = 0;
  if (absl::SimpleAtod(absl::string_view(text.data(), text.size()), &share)) return share;
  std::string_view number = text;
  while (!number.empty() && (number.back() == '%' || number.back() == ' ')) number.remove_suffix(1);
  const bool per_cent = number.size() < text.size() &&
                        absl::SimpleAtod(absl::string_view(number.data(), number.size()), &share);
  return UsageError(absl::StrFormat("%s must be a number in [0, 1]; got \"%s\"%s", flag, text,
                                    per_cent ? absl::StrFormat(" (that is %g)", share / 100) : ""));
}

absl::StatusOr<v1::Pattern> ParsePattern(std::string_view text, std::optional<double> sparsity) {
  const bool unstructured = text == "unstructured";
  // As Python takes it, too.
  const bool per_row = text == "per-row" || text == "per_row";
  if (!unstructured && !per_row) return ParseKeepOfGroup(text, sparsity);
  if (!sparsity) {
    return UsageError(absl::StrFormat("--sparsity is required with --pattern %s", text));
  }
  if (!(*sparsity >= 0 && *sparsity <= 1)) {
    const bool per_cent = *sparsity > 1 && *sparsity <= 100;
    return UsageError(absl::StrFormat(
        "--sparsity must be in [0, 1]; got %g%s", *sparsity,
        per_cent ? absl::StrFormat(" (%g %% is %g)", *sparsity, *sparsity / 100) : ""));
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

std::string JobStateName(v1::JobState state) { return Upper(Name(state)); }

std::string StopReasonName(v1::StopReason why) { return Upper(Name(why)); }

std::string CandidateName(v1::Candidate candidate) { return Upper(Name(candidate)); }

absl::StatusOr<absl::Duration> ParseTimeSpan(std::string_view flag, std::string_view text) {
  absl::Duration span;
  if (!absl::ParseDuration(std::string(text), &span) || span <= absl::ZeroDuration() ||
      span > absl::Hours(24 * 365 * 100)) {
    return UsageError(absl::StrFormat(
        "%s must be a time span above 0 such as 500ms, 60s, 5m or 1h30m; got \"%s\"", flag, text));
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
