// Formats numbers, job states and progress as text.
#ifndef SPARSEFW_CLIENT_CLI_FORMAT_H_
#define SPARSEFW_CLIENT_CLI_FORMAT_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

std::string FormatBytes(double bytes);        // "512 B", "1.5 MiB"
std::string FormatSpan(absl::Duration span);  // "0.12 s", "12.3 s", "5 min 03 s", "2 h 05 min"
std::string FormatLoss(double loss);          // five significant digits
std::string FormatPercent(double share);      // 0.3421 -> "34.2 %"

std::string FormatTimeLeft(absl::Duration left);  // "12 s left", "5 min 03 s left"

// 1 - best / warm start of the losses; unset where the warm start's is unknown.
std::optional<double> ReductionSoFar(const v1::Progress& progress);
// How far the iteration is from its end: the Frank-Wolfe gap as a share of the relaxed loss,
// "converged to 0.32 %"; empty where it is not known.
std::string FormatConvergence(const v1::Progress& progress);
// "iteration 300/2000  relaxed 12345  converged to 0.32 %  best 13456 (5.1 % below the warm
// start)  12 s left", behind "point 2/4" where the job is a sweep.
std::string FormatProgress(const v1::Job& job, const std::optional<absl::Duration>& left);
// "jobs/x queued, 2 ahead", "jobs/x running", ...
// ", attempt 2" of a job that a restart of the server has interrupted; else empty.
std::string FormatAttempt(const v1::Job& job);
std::string FormatState(const v1::Job& job);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FORMAT_H_
