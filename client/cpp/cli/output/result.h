// The result of a job as JSON, as metadata of the mask's file and as an exit code.
#ifndef SPARSEFW_CLIENT_CLI_RESULT_H_
#define SPARSEFW_CLIENT_CLI_RESULT_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/cli/flags/options.h"
#include "nlohmann/json_fwd.hpp"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// Times measured by this program. Unset: null.
struct ClientTimes {
  std::optional<absl::Duration> upload;
  std::optional<absl::Duration> total;  // else from acceptance to end, by the server's clock
};

// times.total, else the server's; unset while the job has not ended.
std::optional<absl::Duration> TotalTime(const v1::Job& job, const ClientTimes& times);

// What every client says first of a result; unset where there is no such value.
// The loss of what is returned (new weights where there are any, else the mask) as a share of
// pruning everything, with the Gram matrix itself.
std::optional<double> LossShare(const v1::Losses& losses);
// lower bound/loss of the mask: at least this share of the mask's loss is unavoidable with the same
// fixed weights.
std::optional<double> Certificate(const v1::Losses& losses);
// The share of the weights that the mask removes.
std::optional<double> Removed(const v1::Job& job);

// Kept weights, losses and stop reason of one solve.
nlohmann::ordered_json ResultNumbersJson(const v1::JobResult& result);

// The object of --json: always the same keys; null where there is no value.
nlohmann::ordered_json ResultJson(const v1::Job& job, const ClientTimes& times);
// ResultJson with progress, queue position, error and labels.
nlohmann::ordered_json StatusJson(const v1::Job& job);

// The numbers of ResultJson as the strings that a safetensors file can hold.
std::map<std::string, std::string> ResultMetadata(const v1::Job& job);

bool HasMask(const v1::Job& job);
// Which of the outputs the job has. One that failed may have a mask: when no room was left for the
// weights.
OutputOptions OutputsOf(const v1::Job& job, OutputOptions output);

// How the program ends: OK when the job has a mask; else an error with exit
// code 4 (failed) or 5 (cancelled or past its deadline without a mask).
absl::Status JobOutcome(const v1::Job& job);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_RESULT_H_
