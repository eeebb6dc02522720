// One whole solve in a process of its own: its time, its losses, its peak memory.
//
//   sparsefw-bench-solve --layer FILE --pattern P --threads T [--device cpu]
//       [--preset paper|fast|balanced|best] [--alpha 0.9, with the joint search 0.4] [--rule
//       open-loop|line-search|auto] [--iterations 2000] [--rel-gap 0] [--swaps 0|1]
//       [--method sparsefw|wanda|ria|magnitude|sparsegpt|alps] [--reconstruct 0|1]
//       [--joint 0|1] [--joint-damping 0.001] [--joint-excluded 0.25] [--report-every 100]
//       [--target LOSS]
//
// Seconds are wall clock from the call of Solve on, loading included. --target: also prints
// when a mask of that loss was first there, null if never. Memory is the peak resident set less
// what was resident before the layer was opened: mapped inputs count, the program does not.
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/options.h"
#include "sparsefw/solver.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

class Trace final : public SolveObserver {
 public:
  explicit Trace(double target) : target_(target) {}

  void OnReport(const ProgressReport& report) override {
    if (!reached_ && report.best_loss <= target_) reached_ = watch_.seconds();
  }
  void OnEnd(const SolveResult& result) {
    seconds_ = watch_.seconds();
    if (!reached_ && result.final_loss <= target_) reached_ = seconds_;
  }

  double seconds() const { return seconds_; }
  Json reached() const { return reached_ ? Json(*reached_) : Json(nullptr); }

 private:
  double target_;
  Stopwatch watch_;
  double seconds_ = 0;
  std::optional<double> reached_;
};

Json UnshrunkJson(const SolveResult& result) {
  if (!result.unshrunk.has_value()) return nullptr;
  return {{"full_loss", result.unshrunk->full}, {"loss", result.unshrunk->result}};
}

Json ResultJson(const SolveResult& result) {
  return {{"iterations", result.iterations},
          {"stop_cause", NameOf(result.stop_cause)},
          {"full_loss", result.full_loss},
          {"warm_start_loss", result.warm_start_loss},
          {"relaxed_loss", result.relaxed_loss},
          {"rounded_loss", result.rounded_loss},
          {"final_loss", result.final_loss},
          {"lower_bound", result.lower_bound},
          {"reconstructed_loss",
           result.weights.size() > 0 ? Json(result.reconstructed_loss) : Json(nullptr)},
          {"unshrunk", UnshrunkJson(result)},
          {"joint_start_loss", result.joint.start_loss},
          {"joint_exchanges", result.joint.exchanges},
          {"joint_converged", result.joint.converged},
          {"mask_crc32c", Crc32c(result.mask.bytes())}};
}

// The options that a job with the same request gets.
SolveOptions OptionsFrom(Flags& flags, const Pattern& pattern) {
  OptionRequest request;
  const auto given = [&](std::string_view option, const std::string& flag) {
    if (flags.Text(flag, "").empty()) return false;
    request.given.insert(option);
    return true;
  };
  if (const std::string preset = flags.Text("preset", ""); !preset.empty()) {
    request.preset = OrDie(ValueOf("--preset", preset, kPresets));
  }
  SolveOptions& options = request.options;
  if (given("method", "method")) {
    options.method = OrDie(ValueOf("--method", flags.Required("method"),
                                   {Method::kSparseFw, Method::kWanda, Method::kRia,
                                    Method::kMagnitude, Method::kSparseGpt, Method::kAlps}));
  }
  if (given("step_rule", "rule")) {
    options.step_rule =
        OrDie(ValueOf("--rule", flags.Required("rule"),
                      {StepRule::kOpenLoop, StepRule::kLineSearch, StepRule::kAuto}));
  }
  if (given("iterations", "iterations")) options.iterations = flags.Integer("iterations", 0);
  if (given("report_every", "report-every"))
    options.report_every = flags.Integer("report-every", 0);
  if (given("rel_gap", "rel-gap")) options.rel_gap = flags.Number("rel-gap", 0);
  if (given("alpha", "alpha")) options.alpha = flags.Number("alpha", 0);
  if (given("swaps", "swaps")) options.swaps = flags.Integer("swaps", 0) != 0;
  if (given("reconstruct", "reconstruct"))
    options.reconstruct = flags.Integer("reconstruct", 0) != 0;
  if (given("joint", "joint")) options.joint = flags.Integer("joint", 0) != 0;
  JointOptions& joint = options.joint_options;
  if (given("joint_damping", "joint-damping")) joint.damping = flags.Number("joint-damping", 0);
  if (given("joint_excluded", "joint-excluded")) joint.excluded = flags.Number("joint-excluded", 0);
  SolveOptions resolved = ResolveOptions(request, pattern);
  resolved.threads = static_cast<int>(flags.Integer("threads", 1));
  return resolved;
}

int Main(int argc, char** argv) {
  const int64_t before = ResidentBytes();
  Flags flags(argc, argv);
  const LayerFile layer = OpenLayer(flags.Required("layer"));
  Problem problem;
  problem.weights = layer.weights;
  problem.gram = layer.gram;
  problem.pattern = ParsePattern(flags.Required("pattern"));
  const SolveOptions options = OptionsFrom(flags, problem.pattern);
  const double target = flags.Number("target", -std::numeric_limits<double>::max());
  const Backend* backend = OrDie(FindBackend(flags.Text("device", "cpu")));
  flags.Finish();

  Trace trace(target);
  const SolveResult result = OrDie(Solve(problem, options, *backend, &trace, nullptr));
  trace.OnEnd(result);
  Json json = {{"rows", layer.weights.rows()},
               {"cols", layer.weights.cols()},
               {"pattern", ToString(problem.pattern)},
               {"alpha", options.alpha},
               {"threads", options.threads},
               {"seconds", trace.seconds()},
               {"seconds_to_target", trace.reached()},
               {"resident_before_bytes", before},
               {"peak_resident_bytes", PeakResidentBytes()}};
  json.update(ResultJson(result));
  std::cout << json.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
