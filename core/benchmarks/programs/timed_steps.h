// Frank-Wolfe steps by the clock: what the measuring programs have in common.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_TIMED_STEPS_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_TIMED_STEPS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {

struct TimedSteps {
  StepRule rule = StepRule::kOpenLoop;
  std::vector<int64_t> marks;  // ascending, not empty; the last one is the end
  double seconds = 30;         // no step is begun after that
};

// `marks` cut to those below `iterations`, which becomes the last.
std::vector<int64_t> MarksUpTo(int64_t iterations, std::vector<int64_t> marks);

// Steps from where a newly loaded engine stands, after an evaluation that is
// outside the clock. At every mark and at the end: seconds since the first
// step, the mean number of coordinates that changed per step, the relaxed loss.
absl::StatusOr<nlohmann::ordered_json> RunTimedSteps(Engine& engine, const TimedSteps& options);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_TIMED_STEPS_H_
