// The names of methods, patterns, states and time spans on the command line.
#ifndef SPARSEFW_CLIENT_CLI_NAMES_H_
#define SPARSEFW_CLIENT_CLI_NAMES_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// The word of an enum's value: its short name in lower case, with hyphens.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);
std::string MethodName(v1::Method method);  // "sparsefw"; of number 0 "unknown"
std::string PresetName(v1::Preset preset);  // "balanced"

// A share such as "0.6". Errors: no number; one in per cent is told what it is as a share.
absl::StatusOr<double> ParseShare(std::string_view flag, std::string_view text);

// "unstructured", "per-row" (with a sparsity), "A:B" (A of every B are kept;
// a sparsity, if given, must be 1 - A/B).
absl::StatusOr<v1::Pattern> ParsePattern(std::string_view text, std::optional<double> sparsity);
std::string PatternName(const v1::Pattern& pattern);
double SparsityOf(const v1::Pattern& pattern);

std::string JobStateName(v1::JobState state);        // "SUCCEEDED"
std::string StopReasonName(v1::StopReason why);      // "ITERATIONS", "GAP", "DEADLINE", "CANCELLED"
std::string CandidateName(v1::Candidate candidate);  // "WARM_START", "ROUNDED", "REFINED"

// "60s", "5m", "1h30m"; positive and finite.
absl::StatusOr<absl::Duration> ParseTimeSpan(std::string_view flag, std::string_view text);
google::protobuf::Duration ToProto(absl::Duration duration);
absl::Duration FromProto(const google::protobuf::Duration& duration);
absl::Time FromProto(const google::protobuf::Timestamp& time);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_NAMES_H_
