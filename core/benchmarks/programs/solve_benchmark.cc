// One whole solve in a process of its own: its time, its losses, its peak memory.
//
//   sparsefw-bench-solve --layer FILE --pattern P --threads T [--device cpu]
//       [--preset paper|fast|balanced|best] [--alpha 0.9, with the joint search 0.4] [--rule
//       open-loop|line-search|auto] [--iterations 2000] [--rel-gap 0] [--swaps 0|1]
//       [--method sparsefw|wanda|ria|magnitude|sparsegpt|alps] [--reconstruct 0|1]
//       [--joint 0|1] [--joint-damping 0.001] [--joint-excluded 0.25] [--report-every 100]
//       [--target LOSS] [--resume FILE] [--checkpoint FILE --checkpoint-every SECONDS]
//
// Seconds are wall clock from the call of Solve on, loading included. --target: also prints
// when a mask of that loss was first there, null if never. --checkpoint: the latest
// checkpoint is kept in FILE; how many, their bytes and their seconds are printed. Memory is
// the peak resident set less what was resident before the layer was opened: mapped inputs count,
// the program does not.
// An option that this build does not implement is reported as {"unimplemented": MESSAGE}.
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/checkpoint_files.h"
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
    const double seconds = watch_.seconds();
    if (!reached_ && report.best_loss <= target_) reached_ = seconds;
    reports_.push_back({{"iteration", report.iteration},
                        {"seconds", seconds},
                        {"relaxed_loss", report.relaxed_loss},
                        {"best_loss", report.best_loss}});
  }
  void OnEnd(const SolveResult& result) {
    seconds_ = watch_.seconds();
    if (!reached_ && result.final_loss <= target_) reached_ = seconds_;
  }

  double seconds() const { return seconds_; }
  Json reached() const { return reached_ ? Json(*reached_) : Json(nullptr); }
  const Json& reports() const { return reports_; }

 private:
  double target_;
  Stopwatch watch_;
  double seconds_ = 0;
  std::optional<double> reached_;
  Json reports_ = Json::array();
};

StepRule ParseRule(const std::string& text) {
  if (text == "open-loop") return StepRule::kOpenLoop;
  if (text == "line-search") return StepRule::kLineSearch;
  if (text == "auto") return StepRule::kAuto;
  Die("--rule must be open-loop, line-search or auto; got \"" + text + "\"");
}

Preset ParsePreset(const std::string& text) {
  for (const Preset preset : {Preset::kPaper, Preset::kFast, Preset::kBalanced, Preset::kBest}) {
    if (sparsefw::NameOf(preset) == text) return preset;
  }
  Die("--preset must be paper, fast, balanced or best; got \"" + text + "\"");
}

Method ParseMethod(const std::string& text) {
  for (const Method method : {Method::kSparseFw, Method::kWanda, Method::kRia, Method::kMagnitude,
                              Method::kSparseGpt, Method::kAlps}) {
    if (sparsefw::NameOf(method) == text) return method;
  }
  Die("--method must be the name of a method; got \"" + text + "\"");
}

std::string CauseName(StopCause cause) {
  if (cause == StopCause::kIterations) return "iterations";
  if (cause == StopCause::kGap) return "gap";
  return cause == StopCause::kDeadline ? "deadline" : "cancelled";
}

Json UnshrunkJson(const SolveResult& result) {
  if (!result.unshrunk.has_value()) return nullptr;
  return {{"full_loss", result.unshrunk->full}, {"loss", result.unshrunk->result}};
}

Json ResultJson(const SolveResult& result) {
  return {{"iterations", result.iterations},
          {"stop_cause", CauseName(result.stop_cause)},
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
    request.preset = ParsePreset(preset);
  }
  SolveOptions& options = request.options;
  if (given("method", "method")) options.method = ParseMethod(flags.Required("method"));
  if (given("step_rule", "rule")) options.step_rule = ParseRule(flags.Required("rule"));
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
  const std::string checkpoint = flags.Text("checkpoint", "");
  FileSink sink(checkpoint, absl::Seconds(flags.Number("checkpoint-every", 30)));
  const std::string resume = flags.Text("resume", "");
  flags.Finish();

  std::vector<std::byte> saved;
  if (!resume.empty()) saved = ReadWhole(resume);
  Trace trace(target);
  const absl::StatusOr<SolveResult> result =
      Solve(problem, options, *backend, &trace, nullptr,
            {.sink = checkpoint.empty() ? nullptr : &sink, .resume = saved});
  if (absl::IsUnimplemented(result.status())) {
    std::cout << Json{{"unimplemented", std::string(result.status().message())}}.dump() << '\n';
    return 0;
  }
  OrDie(result.status());
  trace.OnEnd(*result);
  Json json = {{"rows", layer.weights.rows()},
               {"cols", layer.weights.cols()},
               {"pattern", ToString(problem.pattern)},
               {"alpha", options.alpha},
               {"threads", options.threads},
               {"seconds", trace.seconds()},
               {"seconds_to_target", trace.reached()},
               {"resident_before_bytes", before},
               {"peak_resident_bytes", PeakResidentBytes()}};
  json.update(ResultJson(*result));
  if (!checkpoint.empty()) {
    json["checkpoints"] = {
        {"count", sink.count()}, {"bytes", sink.bytes()}, {"seconds", sink.seconds()}};
  }
  json["reports"] = trace.reports();
  std::cout << json.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
