#include "client/cpp/cli/flags/submit_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/help.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/flags/sweep_flags.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

absl::Status CheckInputs(const SubmitFlags& flags, const SubmitOptions& options) {
  if (options.gram.empty() == options.activations.empty()) {
    return UsageError(options.gram.empty() ? "either --gram or --activations is required"
                                           : "--gram and --activations exclude each other");
  }
  const int starts = (flags.warm_start.empty() ? 0 : 1) + (options.warm_mask.empty() ? 0 : 1) +
                     (options.saliency.empty() ? 0 : 1);
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

absl::Status ApplyWarmStart(const SubmitFlags& flags, v1::JobSpec& spec) {
  if (!flags.warm_start.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const v1::Method method,
                              ParseMethod("--warm-start", flags.warm_start));
    if (method != v1::WANDA && method != v1::RIA && method != v1::MAGNITUDE) {
      return UsageError(absl::StrFormat("--warm-start must be wanda, ria or magnitude; got \"%s\"",
                                        flags.warm_start));
    }
    spec.mutable_warm_start()->set_method(method);
  }
  if (flags.ria_exponent) spec.mutable_warm_start()->set_ria_exponent(*flags.ria_exponent);
  return absl::OkStatus();
}

absl::Status ApplySolver(const SubmitFlags& flags, v1::SparseFwOptions& solver) {
  if (flags.alpha) solver.set_alpha(*flags.alpha);
  if (flags.iterations) solver.set_iterations(*flags.iterations);
  if (!flags.step_rule.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const v1::StepRule rule,
                              ParseStepRule("--step-rule", flags.step_rule));
    solver.set_step_rule(rule);
  }
  if (flags.rel_gap) solver.set_rel_gap(*flags.rel_gap);
  if (flags.report_every) solver.set_report_every(*flags.report_every);
  return absl::OkStatus();
}

// Refinement of the mask of any method, and SparseGPT's own options.
void ApplyRefinement(const SubmitFlags& flags, v1::JobSpec& spec) {
  if (flags.swaps) spec.mutable_refine()->set_swaps(true);
  if (flags.no_keep_fixed) spec.mutable_refine()->set_keep_fixed(false);
  if (flags.joint) spec.mutable_refine()->set_joint(true);
  if (flags.joint_damping) spec.mutable_refine()->set_joint_damping(*flags.joint_damping);
  if (flags.joint_excluded) spec.mutable_refine()->set_joint_excluded(*flags.joint_excluded);
  if (flags.reconstruct) spec.set_reconstruct(true);
  if (flags.shrinkage) spec.set_shrinkage(*flags.shrinkage);
  if (flags.damping) spec.mutable_sparsegpt()->set_damping(*flags.damping);
  if (flags.block_size) spec.mutable_sparsegpt()->set_block_size(*flags.block_size);
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
  if (flags.pattern.empty()) return UsageError("--pattern is required");
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
            "the weight [d_out, d_in], or tensors/<id> on the server")
      ->required();
  AddOption(app, "--gram", options.gram, file,
            "the Gram matrix X X^T [d_in, d_in], or tensors/<id> on the server");
  AddOption(app, "--activations", options.activations, file,
            "activations [tokens, d_in] in place of --gram; the server sums the Gram matrix");
  GroupFlags(app, "Inputs (safetensors; :TENSOR where a file holds several)");
}

void AddMethodFlags(CLI::App& app, SubmitFlags& flags) {
  AddOption(app, "--preset", flags.preset, PresetNames(),
            "named settings; flags beside it win over them");
  AddOption(app, "--method", flags.method, MethodNames(), "default sparsefw");
  AddOption(app, "--pattern", flags.pattern, "unstructured|per-row|A:B",
            "A:B keeps A of every B consecutive inputs of a row");
  AddOption(app, "--sparsity", flags.sparsity, "SHARE", "share of the weights to remove, [0, 1]");
  AddOption(app, "--ria-exponent", flags.ria_exponent, "A",
            "RIA's exponent of the activation norm (default 0.5)");
  AddOption(app, "--shrinkage", flags.shrinkage, "S",
            "share of the inputs' correlations that is taken away, [0, 1): better with few tokens; "
            "losses are then of what is left (default 0)");
  AddOption(app, "--damping", flags.damping, "D",
            "SparseGPT: share of the mean diagonal added to it, [0, 1] (default 0.01)");
  AddOption(app, "--block-size", flags.block_size, "N",
            "SparseGPT: columns whose mask is chosen together (default 128)");
  GroupFlags(app, "Method");
}

void AddSolverFlags(CLI::App& app, SubmitFlags& flags) {
  AddOption(app, "--iterations", flags.iterations, "N", "iterations (default 2000)");
  AddOption(app, "--step-rule", flags.step_rule, StepRuleNames(), "default open-loop");
  AddOption(app, "--alpha", flags.alpha, "SHARE",
            "share of the kept weights that is fixed from the start, [0, 1] (default 0.9)");
  AddOption(app, "--rel-gap", flags.rel_gap, "R",
            "stop once gap <= R * relaxed loss (default 0: never)");
  AddOption(app, "--report-every", flags.report_every, "N",
            "iterations between reports (default 100)");
  AddOption(app, "--warm-start", flags.warm_start, SaliencyNames(),
            "method of the mask to start from (default wanda)");
}

void AddStartFlags(CLI::App& app, SubmitOptions& options) {
  AddOption(app, "--warm-mask", options.warm_mask, "FILE[:TENSOR]",
            "start from this mask (BOOL) instead");
  AddOption(app, "--saliency", options.saliency, "FILE[:TENSOR]",
            "start from the highest of these scores (F32) instead");
}

void AddRefinementFlags(CLI::App& app, SubmitFlags& flags) {
  app.add_flag("--swaps", flags.swaps,
               "exchange kept and removed weights while that lowers the loss; not with sparsegpt "
               "and alps");
  app.add_flag("--no-keep-fixed", flags.no_keep_fixed,
               "let swaps remove the weights that --alpha has fixed");
  app.add_flag("--reconstruct", flags.reconstruct,
               "least-squares update of the kept weights, for --out-weights");
  app.add_flag("--joint", flags.joint,
               "find mask and weights together: exchanges with the weights solved anew, for "
               "--out-weights");
  AddOption(app, "--joint-damping", flags.joint_damping, "D",
            "--joint: share of the mean diagonal added to it, [0, 1] (default 0.001)");
  AddOption(app, "--joint-excluded", flags.joint_excluded, "SHARE",
            "--joint: share of a row's columns, those that promise least, that enter only where "
            "they surely gain, [0, 1) (default 0.25)");
  GroupFlags(app, "Refinement");
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

void AddJobFlags(CLI::App& app, SubmitFlags& flags) {
  AddOption(app, "--deadline", flags.deadline, "SPAN",
            "time from acceptance, such as 60s; then the best mask so far is the result");
  AddOption(app, "--device", flags.device, "DEVICE",
            "auto (default), cpu, reference, cuda or cuda:N");
  AddOption(app, "--precision", flags.precision, PrecisionNames(),
            "of dense products on a CUDA device (default fp32)");
  AddOption(app, "--priority", flags.priority, "N", "[-100, 100], higher runs first (default 0)");
  AddOption(app, "--label", flags.labels, "KEY=VALUE", "kept with the job; may be repeated")
      ->allow_extra_args(false);
}

void AddDetachFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options) {
  app.add_flag("--detach", options.detach, "return as soon as the job is accepted");
  app.add_flag("--mask-only", flags.mask_only,
               "with --detach: make no pruned weight for a later fetch");
}

constexpr char kSolverGroup[] = "Frank-Wolfe (--method sparsefw)";
constexpr char kJobGroup[] = "Job";

}  // namespace

void AddSubmitFlags(CLI::App& app, SubmitFlags& flags, SubmitOptions& options) {
  AddInputFlags(app, options);
  AddMethodFlags(app, flags);
  AddSolverFlags(app, flags);
  AddStartFlags(app, options);
  GroupFlags(app, kSolverGroup);
  AddRefinementFlags(app, flags);
  AddSweepFlags(app, flags);
  AddJobFlags(app, flags);
  AddDetachFlags(app, flags, options);
  GroupFlags(app, kJobGroup);
}

void AddSpecFlags(CLI::App& app, SubmitFlags& flags) {
  AddMethodFlags(app, flags);
  AddSolverFlags(app, flags);
  GroupFlags(app, kSolverGroup);
  AddRefinementFlags(app, flags);
  AddJobFlags(app, flags);
  GroupFlags(app, kJobGroup);
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

absl::Status ApplySpecFlags(const SubmitFlags& flags, v1::JobSpec& spec) {
  if (!flags.preset.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const v1::Preset preset, ParsePreset("--preset", flags.preset));
    spec.set_preset(preset);
  }
  if (!flags.method.empty() || flags.preset.empty()) {
    const std::string name = flags.method.empty() ? "sparsefw" : flags.method;
    SPARSEFW_ASSIGN_OR_RETURN(const v1::Method method, ParseMethod("--method", name));
    spec.set_method(method);
  }
  SPARSEFW_RETURN_IF_ERROR(ApplyPattern(flags, spec));
  SPARSEFW_RETURN_IF_ERROR(ApplyWarmStart(flags, spec));
  SPARSEFW_RETURN_IF_ERROR(ApplySolver(flags, *spec.mutable_sparsefw()));
  ApplyRefinement(flags, spec);
  spec.set_priority(flags.priority);
  spec.set_device(flags.device);
  if (!flags.precision.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const v1::ProductPrecision precision,
                              ParsePrecision("--precision", flags.precision));
    spec.set_product_precision(precision);
  }
  if (!flags.deadline.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(const absl::Duration deadline,
                              ParseTimeSpan("--deadline", flags.deadline));
    *spec.mutable_deadline() = ToProto(deadline);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const auto labels, ParseLabels(flags.labels));
  spec.mutable_labels()->insert(labels.begin(), labels.end());
  return absl::OkStatus();
}

absl::Status ApplySubmitFlags(const SubmitFlags& flags, SubmitOptions& options) {
  SPARSEFW_RETURN_IF_ERROR(CheckInputs(flags, options));
  SPARSEFW_RETURN_IF_ERROR(ApplySpecFlags(flags, options.spec));
  // A detached job is fetched later, perhaps with --out-weights.
  options.spec.set_return_pruned_weight((options.detach && !flags.mask_only) ||
                                        !options.output.out_weights.empty());
  return absl::OkStatus();
}

}  // namespace sparsefw::cli
