// How the rows of an epoch take their iterations.
//
// Open-loop steps are known beforehand, so that a row takes many before the next row is begun:
// independent_steps.h where it has a budget of its own, speculative_steps.h where all rows share
// one. Line search and the gap stop need every row after every step: the same two, one iteration at
// a time.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace sparsefw::cpu {

// What an iteration sums up over the rows: row by row, and the blocks of rows in order, so that
// the bits do not depend on the threads.
struct StepSums {
  double vertex_loss_change = 0;  // b_t - b_{t-1}
  double vertex_inner = 0;        // a_{t+1} = <D(V_{t+1}), E_{t+1}>
  int64_t toggled = 0;            // |V_t xor V_{t-1}|, zero weights left out

  void Add(const StepSums& other) {
    vertex_loss_change += other.vertex_loss_change;
    vertex_inner += other.vertex_inner;
    toggled += other.toggled;
  }
};

struct ScreenedOutcome {
  std::vector<StepSums> sums;  // of the iterations taken, at least one
  bool stepped = true;         // false: U is that of V_t, E still that of M_t
  bool selected = true;        // false: after the last one the epoch must end, V be selected anew
};

// Rows that begin anew may have another number of active columns; what they gather of G stays for
// the epoch where Forget says that it is over.
// Errors: Cancelled; rows are then at different iterations
template <typename Real>
class ScreenedSteps {
 public:
  virtual ~ScreenedSteps() = default;

  // Open-loop iterations from `first` on inside the epoch, `limit` >= 1 at most.
  virtual absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) = 0;

  // Iteration `iteration`. step_of(b_t - b_{t-1}) says the step; below 0: it cannot be taken here.
  virtual absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                                  absl::FunctionRef<double(double)> step_of) = 0;

  // The epoch has ended.
  virtual void Forget() = 0;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_
