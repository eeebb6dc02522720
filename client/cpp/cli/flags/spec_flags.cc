#include "client/cpp/cli/flags/spec_flags.h"

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/cpp/cli/flags/field_text.h"

namespace sparsefw::cli {
namespace {

struct SpecFlag {
  SpecFlagGroup group;
  const char* name;
  const char* path;  // of the field in v1::JobSpec
  const char* type;  // of the value, for the help; of enums empty: their words
  const char* help;
  // What a flag without a value stands for.
  const char* value = "on";
};

// A new option of a job is one line here.
constexpr SpecFlag kSpecFlags[] = {
    {SpecFlagGroup::kMethod, "--preset", "preset", "",
     "named settings; flags beside it win over them (default balanced, unless --method or an "
     "option "
     "of a method is given)"},
    {SpecFlagGroup::kMethod, "--method", "method", "",
     "default sparsefw where an option of a method is given, else the preset's"},
    {SpecFlagGroup::kMethod, "--ria-exponent", "warm_start.ria_exponent", "A",
     "RIA's exponent of the activation norm (default 0.5)"},
    {SpecFlagGroup::kMethod, "--shrinkage", "shrinkage", "S",
     "reduces the correlations of the inputs in the Gram matrix by this share, [0, 1): better with "
     "few tokens (default 0, or the preset's)"},
    {SpecFlagGroup::kMethod, "--damping", "sparsegpt.damping", "D",
     "SparseGPT: this share of the mean of the Gram matrix's diagonal is added to the diagonal, "
     "[0, 1] (default 0.01)"},
    {SpecFlagGroup::kMethod, "--block-size", "sparsegpt.block_size", "N",
     "SparseGPT: columns whose mask is chosen together (default 128)"},
    {SpecFlagGroup::kSolver, "--iterations", "sparsefw.iterations", "N",
     "iterations (default 2000, or the preset's)"},
    {SpecFlagGroup::kSolver, "--step-rule", "sparsefw.step_rule", "", "default open-loop"},
    {SpecFlagGroup::kSolver, "--alpha", "sparsefw.alpha", "SHARE",
     "share of the kept weights that is fixed from the start, also for --swaps and --joint, [0, 1] "
     "(default 0.9; with --joint and A:B 0.4; or the preset's)"},
    {SpecFlagGroup::kSolver, "--rel-gap", "sparsefw.rel_gap", "R",
     "stop once gap <= R * relaxed loss (default 0: never; with auto 2e-3)"},
    {SpecFlagGroup::kSolver, "--report-every", "sparsefw.report_every", "N",
     "iterations between reports (default 100)"},
    {SpecFlagGroup::kSolver, "--warm-start", "warm_start.method", "wanda|ria|magnitude",
     "method of the mask to start from (default wanda)"},
    {SpecFlagGroup::kRefinement, "--swaps", "refine.swaps", nullptr,
     "exchange kept and removed weights while that lowers the loss; not with sparsegpt and alps"},
    {SpecFlagGroup::kRefinement, "--no-keep-fixed", "refine.keep_fixed", nullptr,
     "let --swaps and --joint remove the weights that --alpha has fixed", "off"},
    {SpecFlagGroup::kRefinement, "--reconstruct", "reconstruct", nullptr,
     "least-squares update of the kept weights, for --out-weights"},
    {SpecFlagGroup::kRefinement, "--joint", "refine.joint", nullptr,
     "find mask and weights together: exchanges with the weights solved anew, for --out-weights"},
    {SpecFlagGroup::kRefinement, "--joint-damping", "refine.joint_damping", "D",
     "--joint: as --damping, [0, 1] (default 0.001)"},
    {SpecFlagGroup::kRefinement, "--joint-excluded", "refine.joint_excluded", "SHARE",
     "--joint: share of a row's columns that the search leaves out until its end, [0, 1): the "
     "removed weights whose return gains least (default: leaves in as many of these as kept "
     "weights; with A:B 0.25)"},
    {SpecFlagGroup::kJob, "--device", "device", "auto|cpu|reference|cuda|cuda:N", "default auto"},
    {SpecFlagGroup::kJob, "--precision", "product_precision", "",
     "of dense products on a CUDA device (default fp32)"},
    {SpecFlagGroup::kJob, "--priority", "priority", "N",
     "[-100, 100], higher runs first (default 0)"},
};

void Set(v1::JobSpec& spec, const SpecFlag& flag, const std::string& text) {
  const absl::Status status = SetField(spec, flag.path, flag.name, text);
  if (status.ok()) return;
  throw CLI::ConversionError(std::string(status.message()));
}

}  // namespace

void AddSpecFlags(CLI::App& app, SpecFlagGroup group, v1::JobSpec& spec) {
  for (const SpecFlag& flag : kSpecFlags) {
    if (flag.group != group) continue;
    if (flag.type == nullptr) {
      app.add_flag_callback(
          flag.name, [&spec, &flag] { Set(spec, flag, flag.value); }, flag.help);
      continue;
    }
    const auto* field = FindField(*v1::JobSpec::descriptor(), flag.path);
    const std::string type = *flag.type == '\0' ? EnumWords(*field->enum_type()) : flag.type;
    app.add_option_function<std::string>(
           flag.name, [&spec, &flag](const std::string& text) { Set(spec, flag, text); }, flag.help)
        ->type_name(type);
  }
}

}  // namespace sparsefw::cli
