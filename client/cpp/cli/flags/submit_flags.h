// The flags of `submit`, as text, and the job that they describe.
#ifndef SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_
#define SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/cli/flags/options.h"

namespace CLI {
class App;
}

namespace sparsefw::cli {

// Flags that stand for more than one field of the spec; spec_flags.h has the others.
struct SubmitFlags {
  std::string pattern = "per-row";  // as in Python
  std::optional<double> sparsity;
  std::vector<std::string> sweep;  // KEY=VALUE[,VALUE...]
  bool keep_all = false;
  bool mask_only = false;
  std::string deadline;
  std::vector<std::string> labels;
};

void AddSubmitFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options);

// Checks the flags against each other and fills options.spec.
absl::Status ApplySubmitFlags(const SubmitFlags& flags, SubmitOptions& options);

// "k=v", ...
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& labels);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_
