#include "core/benchmarks/programs/timed_steps.h"

#include <algorithm>
#include <utility>

#include "core/benchmarks/programs/bench_program.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

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
          {"screened_epochs", stats.engine.screening.epochs},
          {"screened_iterations", stats.engine.screening.iterations},
          {"active_share", stats.engine.screening.active_share},
          {"relaxed_loss", stats.relaxed_loss}};
}

}  // namespace

std::vector<int64_t> MarksUpTo(int64_t iterations, std::vector<int64_t> marks) {
  std::erase_if(marks, [&](int64_t mark) { return mark < 1 || mark >= iterations; });
  marks.push_back(iterations);
  std::sort(marks.begin(), marks.end());
  return marks;
}

absl::StatusOr<Json> RunTimedSteps(Engine& engine, const TimedSteps& options) {
  // Converts the layer and evaluates where it stands.
  SPARSEFW_RETURN_IF_ERROR(engine.Step({.rule = options.rule}).status());
  Json marks = Json::array();
  StepStats stats;
  const Stopwatch watch;
  double elapsed = 0;
  for (const int64_t mark : options.marks) {
    while (stats.iteration < mark && (elapsed < options.seconds || stats.iteration == 0)) {
      const int64_t count = BatchSize(stats.iteration, mark, elapsed, options.seconds);
      SPARSEFW_ASSIGN_OR_RETURN(stats, engine.Step({.count = count, .rule = options.rule}));
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

}  // namespace sparsefw::bench
