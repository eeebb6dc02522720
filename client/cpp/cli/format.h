// Numbers for people.
#ifndef SPARSEFW_CLIENT_CLI_FORMAT_H_
#define SPARSEFW_CLIENT_CLI_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "sparsefw/client/options.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

std::string FormatBytes(double bytes);        // "512 B", "1.5 MiB"
std::string FormatSpan(absl::Duration span);  // "0.12 s", "12.3 s", "5 min 03 s", "2 h 05 min"
std::string FormatLoss(double loss);          // five significant digits
std::string FormatPercent(double share);      // 0.3421 -> "34.2 %"

// "weights.safetensors:q  12.0 MiB of 64.0 MiB (18.8 %)  850.0 MiB/s"
std::string FormatTransfer(std::string_view what, const client::TransferProgress& progress,
                           absl::Duration elapsed);
// "iteration 300/2000  relaxed 12345  gap 12.3  best 13456  12.3 s left"
std::string FormatProgress(const v1::Progress& progress);
// "jobs/x queued, 2 ahead", "jobs/x running", ...
std::string FormatState(const v1::Job& job);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FORMAT_H_
