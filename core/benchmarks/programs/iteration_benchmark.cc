// Time of Frank-Wolfe iterations of one engine on one layer.
//
//   sparsefw-bench-iteration --layer FILE --pattern P --alpha A --threads T
//       [--device cpu] [--iterations 200] [--marks 20,50] [--seconds 30] [--repetitions 1]
//       [--screened 0|1]
//
// Runs open-loop steps from Wanda's mask, up to --iterations or until --seconds
// are over, and prints at every mark and at the end: seconds since the first
// step, the mean number of coordinates that changed per step, the relaxed loss.
// Loading and the first evaluation are outside the clock.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layer_file.h"
#include "core/benchmarks/programs/timed_steps.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

// One run from the starting point on; the marks that were reached.
Json RunOnce(const EngineProblem& problem, const std::string& device, const EngineOptions& options,
             const TimedSteps& steps) {
  const Backend* backend = OrDie(FindBackend(device));
  const std::unique_ptr<Engine> engine = OrDie(backend->CreateEngine(options));
  OrDie(engine->Load(problem));
  return OrDie(RunTimedSteps(*engine, steps));
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const LayerFile layer = OpenLayer(flags.Required("layer"));
  const Pattern pattern = ParsePattern(flags.Required("pattern"));
  const double alpha = flags.Number("alpha", 0.9);
  const std::string device = flags.Text("device", "cpu");
  const auto threads = static_cast<int>(flags.Integer("threads", 1));
  const EngineOptions options = {
      .threads = threads,
      .tuning = {.screening = flags.Integer("screened", 1) != 0 ? Screening::kWhereItPays
                                                                : Screening::kNever}};
  const TimedSteps steps = {
      .marks = MarksUpTo(flags.Integer("iterations", 200), flags.Integers("marks")),
      .seconds = flags.Number("seconds", 30)};
  const int64_t repetitions = flags.Integer("repetitions", 1);
  flags.Finish();

  const StartingPoint start = MakeStartingPoint(layer, pattern, alpha);
  Json runs = Json::array();
  const Stopwatch watch;
  double per_run = 0;  // a repetition that would not fit the time is not begun
  while (static_cast<int64_t>(runs.size()) < repetitions &&
         watch.seconds() + per_run <= steps.seconds) {
    runs.push_back(RunOnce(start.problem(layer), device, options, steps));
    per_run = watch.seconds() / static_cast<double>(runs.size());
  }
  std::cout << Json{{"rows", layer.weights.rows()},
                    {"cols", layer.weights.cols()},
                    {"device", device},
                    {"threads", threads},
                    {"pattern", ToString(pattern)},
                    {"alpha", alpha},
                    {"runs", runs}}
                   .dump()
            << '\n';
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
