// What is known of activations and Gram matrices in files before they are sent: whether they can be
// the inputs of a weight, and what is worth a warning.
#ifndef SPARSEFW_CLIENT_CLI_FILES_CALIBRATION_H_
#define SPARSEFW_CLIENT_CLI_FILES_CALIBRATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/cli/inputs.h"

namespace sparsefw::cli {

// Bytes and tokens of all batches, and a name for messages.
std::vector<std::span<const std::byte>> BytesOf(std::span<const Input> batches);
int64_t TokensOf(std::span<const Input> batches);
std::string LabelOf(std::span<const Input> batches);

// How many tokens a Gram matrix was summed from, as its file says; 0: unknown.
int64_t TokenCount(const Input& gram);

// Errors (exit code 2): a shape that does not fit the weight [d_out, d_in]; the message says what
// it may be instead, such as activations that are transposed.
absl::Status CheckActivations(const Input& activations, const Input& weight);
absl::Status CheckGram(const Input& gram, const Input& weight);

// Only zeros; fewer tokens than inputs; a transposed X that its shape cannot tell. One line each.
std::vector<std::string> WarningsOf(std::span<const Input> batches);
// A zero diagonal; fewer tokens than inputs; a matrix of higher rank than that of a sum over its
// tokens.
std::vector<std::string> WarningsOfGram(const Input& gram);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_FILES_CALIBRATION_H_
