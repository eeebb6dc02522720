#include "client/cpp/cli/flags/submit_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/help.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/flags/spec_flags.h"
#include "client/cpp/cli/flags/sweep_flags.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::Status CheckInputs(const SubmitFlags& flags, const SubmitOptions& options) {
  if (options.gram.empty() == options.activations.empty()) {
    return UsageError(options.gram.empty() ? "either --gram or --activations is required"
                                           : "--gram and --activations exclude each other");
  }
  const int starts = (options.spec.warm_start().has_method() ? 1 : 0) +
                     (options.warm_mask.empty() ? 0 : 1) + (options.saliency.empty() ? 0 : 1);
  if (starts > 1) return UsageError("--warm-start, --warm-mask and --saliency exclude each other");
  const OutputOptions& output = options.output;
  if (flags.mask_only && !options.detach) return UsageError("--mask-only belongs to --detach");
  if (options.detach) {
    if (output.out.empty() && output.out_weights.empty()) return absl::OkStatus();
    return UsageError("--out and --out-weights belong to fetch when --detach is given");
  }
  if (output.out.empty()) return UsageError("--out is required unless --detach is given");
  return absl::OkStatus();
}

// A sweep over patterns needs no --pattern; what else is given holds for every
// point that does not say otherwise.
absl::Status ApplyPattern(const SubmitFlags& flags, v1::JobSpec& spec) {
  if (!flags.sweep.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(*spec.mutable_sweep(), ParseSweep(flags));
    if (spec.sweep().points(0).has_pattern()) return absl::OkStatus();
  } else if (flags.keep_all) {
    return UsageError("--keep-all belongs to --sweep");
  }
  SPARSEFW_ASSIGN_OR_RETURN(*spec.mutable_pattern(), ParsePattern(flags.pattern, flags.sparsity));
  return absl::OkStatus();
}

CLI::Option* AddOption(CLI::App& app, const char* name, auto& value, const std::string& type,
                       const std::string& description) {
  return app.add_option(name, value, description)->type_name(type);
}

void AddInputFlags(CLI::App& app, SubmitOptions& options) {
  const std::string file = "FILE[:TENSOR]";
  AddOption(app, "--weights", options.weights, file,
            "the weight [d_out, d_in], or tensors/ID on the server")
      ->required();
  AddOption(
      app, "--gram", options.gram, file,
      "the Gram matrix x.T @ x [d_in, d_in] of activations x [tokens, d_in], or tensors/ID on the "
      "server");
  AddOption(
      app, "--activations", options.activations, file,
      "activations [tokens, d_in] in place of --gram, of one or several files; the server sums "
      "the Gram matrix");
  GroupFlags(app, "Inputs (safetensors or .npy; :TENSOR where a file holds several)");
}

void AddMethodFlags(CLI::App& app, SubmitFlags& flags, v1::JobSpec& spec) {
  AddOption(app, "--pattern", flags.pattern, "unstructured|per-row|A:B",
            "A:B keeps A of every B consecutive inputs of a row (default per-row)");
  app.add_option_function<std::string>(
         "--sparsity",
         [&flags](const std::string& text) {
           const auto share = ParseShare("--sparsity", text);
           if (!share.ok()) throw CLI::ConversionError(std::string(share.status().message()));
           flags.sparsity = *share;
         },
         "share of the weights to remove, [0, 1]; required except with A:B")
      ->type_name("SHARE");
  AddSpecFlags(app, SpecFlagGroup::kMethod, spec);
  GroupFlags(app, "Method");
}

void AddStartFlags(CLI::App& app, SubmitOptions& options) {
  AddOption(app, "--warm-mask", options.warm_mask, "FILE[:TENSOR]",
            "start from this mask (BOOL) instead");
  AddOption(app, "--saliency", options.saliency, "FILE[:TENSOR]",
            "start from the highest of these scores (F32) instead");
}

void AddSweepFlags(CLI::App& app, SubmitFlags& flags) {
  AddOption(app, "--sweep", flags.sweep, "KEY=VALUE[,VALUE...]",
            "run every value as a point of one job; KEY is alpha, sparsity, method, pattern, "
            "swaps, reconstruct or joint (on, off); may be repeated for every combination")
      ->allow_extra_args(false);
  app.add_flag("--keep-all", flags.keep_all,
               "--out holds the masks of all points, not only the best");
  GroupFlags(app, "Sweep");
}

void AddJobFlags(CLI::App& app, SubmitFlags& flags, v1::JobSpec& spec) {
  AddOption(app, "--deadline", flags.deadline, "SPAN",
            "time from acceptance, such as 60s; then the best mask so far is the result");
  AddSpecFlags(app, SpecFlagGroup::kJob, spec);
  AddOption(app, "--label", flags.labels, "KEY=VALUE", "kept with the job; may be repeated")
      ->allow_extra_args(false);
}

void AddDetachFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options) {
  app.add_flag("--detach", options.detach, "return as soon as the job is accepted");
  app.add_flag("--mask-only", flags.mask_only,
               "with --detach: make no pruned weight for a later fetch");
}

}  // namespace

void AddSubmitFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options) {
  AddInputFlags(app, options);
  AddMethodFlags(app, flags, options.spec);
  AddSpecFlags(app, SpecFlagGroup::kSolver, options.spec);
  AddStartFlags(app, options);
  GroupFlags(app, "Frank-Wolfe (--method sparsefw)");
  AddSpecFlags(app, SpecFlagGroup::kRefinement, options.spec);
  GroupFlags(app, "Refinement");
  AddSweepFlags(app, flags);
  AddJobFlags(app, flags, options.spec);
  AddDetachFlags(app, flags, options);
  GroupFlags(app, "Job");
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& labels) {
  std::map<std::string, std::string> result;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(absl::StrFormat("--label must be KEY=VALUE; got \"%s\"", label));
    }
    result[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return result;
}

absl::Status ApplySubmitFlags(const SubmitFlags& flags, SubmitOptions& options) {
  SPARSEFW_RETURN_IF_ERROR(CheckInputs(flags, options));
  v1::JobSpec& spec = options.spec;
  SPARSEFW_RETURN_IF_ERROR(ApplyPattern(flags, spec));
  if (!flags.deadline.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const absl::Duration deadline,
                              ParseTimeSpan("--deadline", flags.deadline));
    *spec.mutable_deadline() = ToProto(deadline);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const auto labels, ParseLabels(flags.labels));
  spec.mutable_labels()->insert(labels.begin(), labels.end());
  // A detached job is fetched later, perhaps with --out-weights.
  spec.set_return_pruned_weight((options.detach && !flags.mask_only) ||
                                !options.output.out_weights.empty());
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
