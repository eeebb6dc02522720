// `--sweep`: a grid of settings, as text, and the points of the job.
#ifndef SPARSEFW_CLIENT_CLI_SWEEP_FLAGS_H_
#define SPARSEFW_CLIENT_CLI_SWEEP_FLAGS_H_

#include "absl/status/statusor.h"
#include "client/cpp/cli/flags/submit_flags.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// Every combination of the values in flags.sweep; the key given last varies
// fastest. A point holds what its keys say, and the pattern where one of the
// keys is pattern or sparsity. At least one point.
//
// Errors: exit code 2; an unknown or repeated key, a value that the key does
//         not take, more points than a job may have.
absl::StatusOr<v1::Sweep> ParseSweep(const SubmitFlags& flags);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SWEEP_FLAGS_H_
