// The input files of `submit`, checked against each other and against the outputs.
#ifndef SPARSEFW_CLIENT_CLI_SUBMIT_INPUTS_H_
#define SPARSEFW_CLIENT_CLI_SUBMIT_INPUTS_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/flags/options.h"
#include "client/cpp/cli/inputs.h"

namespace sparsefw::cli {

struct SubmitInputs {
  Input weight;  // [d_out, d_in]
  std::optional<Input> gram;
  std::vector<Input> activations;  // batches
  std::optional<Input> warm_mask;
  std::optional<Input> saliency;
};

// Errors: exit code 2; a file that LoadInput or LoadActivations refuses, shapes that do not fit, a
// d_in that the pattern does not divide.
absl::StatusOr<SubmitInputs> LoadSubmitInputs(const SubmitOptions& options);

// Errors: exit code 2; an output that is an input or cannot be written.
absl::Status CheckOutputs(const OutputOptions& output, const SubmitInputs& inputs);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SUBMIT_INPUTS_H_
