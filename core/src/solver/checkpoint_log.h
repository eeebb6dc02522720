// The checkpoints of one solve: docs/adr/0021-checkpoints.md.
#ifndef SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_LOG_H_
#define SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/src/solver/checkpoint_file.h"
#include "core/src/solver/solve_state.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/iteration_state.h"

namespace sparsefw {

// The next step of a solve; checkpoints hold the values.
enum class Stage : int64_t { kIterate = 0, kRefine = 1, kReconstruct = 2 };

// Writes the state to the caller's sink, and restores it from the caller's checkpoint. Without
// these it does nothing.
class CheckpointLog {
 public:
  explicit CheckpointLog(SolveState& state);

  // Before anything costs time: whether the checkpoint is one of this solve.
  // Errors: FailedPrecondition (CHECKPOINT_INVALID), as of the restoring ones; Cancelled
  absl::Status Open();

  bool resumes() const { return resume_.has_value(); }
  Stage first() const { return first_; }  // where the solve begins

  // The warm start has been evaluated: its losses say whether the inputs are those
  // of the checkpoint. Restores the state, and reports it if that is all there is to restore.
  absl::Status RestoreState();
  // The engine's part, in place of its first step; reports the state.
  absl::Status RestoreEngine();

  // Writes a checkpoint if one is due.
  // Errors: the engine's. One that the sink fails to write is left out.
  absl::Status Offer(Stage next);

 private:
  absl::Status Write(CheckpointWriter& writer, Stage next);

  SolveState& state_;
  std::string terms_;                  // empty: no checkpoints
  std::optional<StateReader> resume_;  // empty: from the start
  Stage first_ = Stage::kIterate;
  absl::Time last_;  // when the last attempt ended
  absl::Duration last_took_;
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_LOG_H_
