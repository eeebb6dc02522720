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

// The values that the functions below parse, for help texts: "open-loop|line-search".
std::string MethodNames();
std::string PresetNames();
std::string SaliencyNames();  // the methods that --warm-start takes
std::string StepRuleNames();
std::string PrecisionNames();
std::string JobStateNames();

// "sparsefw", "wanda", "ria", "magnitude", "sparsegpt"
absl::StatusOr<v1::Preset> ParsePreset(std::string_view flag, std::string_view text);
absl::StatusOr<v1::Method> ParseMethod(std::string_view flag, std::string_view text);
std::string MethodName(v1::Method method);

// "open-loop", "line-search"
absl::StatusOr<v1::StepRule> ParseStepRule(std::string_view flag, std::string_view text);

// "fp32", "tf32", "bf16"
absl::StatusOr<v1::ProductPrecision> ParsePrecision(std::string_view flag, std::string_view text);

// "unstructured", "per-row" (with a sparsity), "A:B" (A of every B are kept;
// a sparsity, if given, must be 1 - A/B).
absl::StatusOr<v1::Pattern> ParsePattern(std::string_view text, std::optional<double> sparsity);
std::string PatternName(const v1::Pattern& pattern);
double SparsityOf(const v1::Pattern& pattern);

// "queued", "running", ... in any case.
absl::StatusOr<v1::JobState> ParseJobState(std::string_view flag, std::string_view text);
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
