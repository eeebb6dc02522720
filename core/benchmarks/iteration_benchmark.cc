// Time of Frank-Wolfe iterations of one engine on one layer.
//
//   sparsefw-bench-iteration --layer FILE --pattern P --alpha A --threads T
//       [--device cpu] [--iterations 200] [--marks 20,50] [--seconds 30] [--repetitions 1]
//
// Runs open-loop steps from Wanda's mask, up to --iterations or until --seconds
// are over, and prints at every mark and at the end: seconds since the first
// step, the mean number of coordinates that changed per step, the relaxed loss.
// Loading and the first evaluation are outside the clock.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/benchmarks/bench_program.h"
#include "core/benchmarks/layer_file.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string device;
  int threads = 1;
  double seconds = 0;
  std::vector<int64_t> marks;  // ascending; the last one is the end
};

// Steps between two looks at the clock: few enough to keep the limit, and
// without any cost, since a batch ends where the next one begins.
int64_t BatchSize(int64_t iteration, int64_t mark, double elapsed, double limit) {
  if (iteration == 0) return 1;
  const double per_step = elapsed / static_cast<double>(iteration);
  const auto fits = static_cast<int64_t>((limit - elapsed) / per_step / 4);
  return std::clamp<int64_t>(fits, 1, mark - iteration);
}

Json MarkOf(const StepStats& stats, double seconds) {
  const auto steps = static_cast<double>(stats.iteration);
  return {{"iterations", stats.iteration},
          {"seconds", seconds},
          {"toggled_per_iteration", static_cast<double>(stats.toggled) / steps},
          {"relaxed_loss", stats.relaxed_loss}};
}

// One run from the starting point on; the marks that were reached.
Json RunOnce(const EngineProblem& problem, const Options& options) {
  const Backend* backend = OrDie(FindBackend(options.device));
  const std::unique_ptr<Engine> engine = OrDie(backend->CreateEngine({.threads = options.threads}));
  OrDie(engine->Load(problem));
  OrDie(engine->Step({}).status());  // converts the layer and evaluates where it stands

  Json marks = Json::array();
  StepStats stats;
  const Stopwatch watch;
  double elapsed = 0;
  for (const int64_t mark : options.marks) {
    while (stats.iteration < mark && (elapsed < options.seconds || stats.iteration == 0)) {
      stats = OrDie(
          engine->Step({.count = BatchSize(stats.iteration, mark, elapsed, options.seconds)}));
      elapsed = watch.seconds();
    }
    if (stats.iteration < mark) break;
    marks.push_back(MarkOf(stats, elapsed));
  }
  if (marks.empty() || marks.back()["iterations"] != stats.iteration) {
    marks.push_back(MarkOf(stats, elapsed));
  }
  return marks;
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const LayerFile layer = OpenLayer(flags.Required("layer"));
  const Pattern pattern = ParsePattern(flags.Required("pattern"));
  const double alpha = flags.Number("alpha", 0.9);
  Options options = {.device = flags.Text("device", "cpu"),
                     .threads = static_cast<int>(flags.Integer("threads", 1)),
                     .seconds = flags.Number("seconds", 30),
                     .marks = flags.Integers("marks")};
  const int64_t iterations = flags.Integer("iterations", 200);
  std::erase_if(options.marks, [&](int64_t mark) { return mark < 1 || mark >= iterations; });
  options.marks.push_back(iterations);
  std::sort(options.marks.begin(), options.marks.end());
  const int64_t repetitions = flags.Integer("repetitions", 1);
  flags.Finish();

  const StartingPoint start = MakeStartingPoint(layer, pattern, alpha);
  Json runs = Json::array();
  const Stopwatch watch;
  double per_run = 0;  // a repetition that would not fit the time is not begun
  while (static_cast<int64_t>(runs.size()) < repetitions &&
         watch.seconds() + per_run <= options.seconds) {
    runs.push_back(RunOnce(start.problem(layer), options));
    per_run = watch.seconds() / static_cast<double>(runs.size());
  }
  std::cout << Json{{"rows", layer.weights.rows()},
                    {"cols", layer.weights.cols()},
                    {"device", options.device},
                    {"threads", options.threads},
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
