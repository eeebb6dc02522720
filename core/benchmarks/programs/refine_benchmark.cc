// Swap refinement and weight reconstruction of the CPU engine, beside the loss
// of a mask, which is half a dense float64 product on the same layer.
//
// wanda: from Wanda's mask, nothing fixed; sparsefw: from the mask of 100
// line-search steps at alpha 0.9, its fixed set fixed. Counters: swaps; loss
// after the stage over the loss before; iterations of the reconstruction.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/bench_layer.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

constexpr double kSparsity = 0.6;
constexpr int64_t kSteps = 100;

struct Case {
  int64_t size;
  Pattern pattern;
  bool from_wanda;
  int threads;
};

// An engine and the mask that a stage starts from.
struct Start {
  std::unique_ptr<Engine> engine;
  Mask mask;
};

absl::StatusOr<Start> StartOf(const Case& c) {
  const BenchLayer& layer = GetBenchLayer(c.size, c.size, c.pattern, c.from_wanda ? 0 : 0.9);
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend("cpu"));
  Start start;
  SPARSEFW_ASSIGN_OR_RETURN(start.engine, backend->CreateEngine({.threads = c.threads}));
  SPARSEFW_RETURN_IF_ERROR(start.engine->Load(layer.problem()));
  start.mask = layer.warm;
  if (c.from_wanda) return start;
  SPARSEFW_RETURN_IF_ERROR(
      start.engine->Step({.count = kSteps, .rule = StepRule::kLineSearch}).status());
  SPARSEFW_ASSIGN_OR_RETURN(RoundedMask rounded, start.engine->Round());
  start.mask = std::move(rounded.mask);
  return start;
}

absl::Status RunRefine(benchmark::State& state, const Case& c) {
  SPARSEFW_ASSIGN_OR_RETURN(const Start start, StartOf(c));
  SPARSEFW_ASSIGN_OR_RETURN(const double before, start.engine->Loss(start.mask));
  RefinedMask refined;
  for (auto _ : state) {
    SPARSEFW_ASSIGN_OR_RETURN(refined, start.engine->Refine(start.mask, {}));
  }
  state.counters["swaps"] = static_cast<double>(refined.swaps);
  state.counters["loss_ratio"] = 1 + refined.loss_change / before;
  return absl::OkStatus();
}

absl::Status RunReconstruct(benchmark::State& state, const Case& c) {
  SPARSEFW_ASSIGN_OR_RETURN(const Start start, StartOf(c));
  SPARSEFW_ASSIGN_OR_RETURN(const double before, start.engine->Loss(start.mask));
  Matrix<float> weights;
  int64_t iterations = 0;
  for (auto _ : state) {
    iterations = 0;
    const ReconstructRequest counting = {.out_of_time = [&] { return ++iterations < 0; }};
    SPARSEFW_ASSIGN_OR_RETURN(weights, start.engine->Reconstruct(start.mask, counting));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const double after, start.engine->LossOfWeights(weights));
  state.counters["iterations"] = static_cast<double>(iterations);
  state.counters["loss_ratio"] = after / before;
  return absl::OkStatus();
}

absl::Status RunLoss(benchmark::State& state, const Case& c) {
  SPARSEFW_ASSIGN_OR_RETURN(const Start start, StartOf(c));
  for (auto _ : state) SPARSEFW_RETURN_IF_ERROR(start.engine->Loss(start.mask).status());
  return absl::OkStatus();
}

using Stage = absl::Status (*)(benchmark::State& state, const Case& c);

void Register(const std::string& name, Stage stage, const Case& c) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [stage, c](benchmark::State& state) {
                                 const absl::Status status = stage(state, c);
                                 if (!status.ok()) state.SkipWithError(status.ToString().c_str());
                               })
      ->UseRealTime()
      ->MeasureProcessCPUTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  const std::vector<std::pair<std::string, Pattern>> patterns = {
      {"unstructured", Pattern::Unstructured(kSparsity)},
      {"per_row", Pattern::PerRow(kSparsity)},
      {"2:4", Pattern::KeepOfGroup(2, 4)}};
  std::vector<int> thread_counts = {1};
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 1) thread_counts.push_back(cores);
  for (const int threads : thread_counts) {
    for (const int64_t size : {1024, 2048}) {
      const std::string suffix = absl::StrFormat("/%d/threads:%d", size, threads);
      Register("loss/per_row" + suffix, RunLoss, {size, patterns[1].second, true, threads});
      for (const bool from_wanda : {false, true}) {
        const std::string from = from_wanda ? "/wanda" : "/sparsefw";
        for (const auto& [name, pattern] : patterns) {
          Register("refine/" + name + from + suffix, RunRefine,
                   {size, pattern, from_wanda, threads});
        }
      }
      Register("reconstruct/per_row/wanda" + suffix, RunReconstruct,
               {size, patterns[1].second, true, threads});
    }
  }
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  sparsefw::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
