// The flags of `submit`, as text, and the job that they describe.
#ifndef SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_
#define SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_

#include <cstdint>
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

struct SubmitFlags {
  std::string preset;
  std::string method;  // empty: the preset's, else sparsefw
  std::string pattern;
  std::optional<double> sparsity;
  std::string warm_start;
  std::optional<double> ria_exponent;
  std::optional<double> shrinkage;
  std::optional<double> alpha;
  std::optional<int64_t> iterations;
  std::string step_rule;
  std::optional<double> rel_gap;
  std::optional<int64_t> report_every;
  bool swaps = false;
  bool no_keep_fixed = false;
  bool reconstruct = false;
  bool joint = false;
  std::optional<double> joint_damping;
  std::optional<double> joint_excluded;
  std::optional<double> damping;
  std::optional<int32_t> block_size;
  std::vector<std::string> sweep;  // KEY=VALUE[,VALUE...]
  bool keep_all = false;
  bool mask_only = false;
  std::string deadline;
  std::string device;
  std::string precision;
  int32_t priority = 0;
  std::vector<std::string> labels;
};

void AddSubmitFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options);

// Those that say how to prune, and nothing of inputs, outputs and sweeps.
void AddSpecFlags(CLI::App& app, SubmitFlags& flags);
absl::Status ApplySpecFlags(const SubmitFlags& flags, v1::JobSpec& spec);

// Checks the flags against each other and fills options.spec.
absl::Status ApplySubmitFlags(const SubmitFlags& flags, SubmitOptions& options);

// "k=v", ...
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& labels);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_SUBMIT_FLAGS_H_
