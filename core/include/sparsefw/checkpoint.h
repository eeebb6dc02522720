// Checkpoints of a running solve: what it takes to go on after the process was
// killed and end with the same bits.
//
// A checkpoint is written at a report point or between two stages, when the
// caller's sink says that one is due. It does not change what the solve
// computes. Given to Solve with the same problem and options, on the same engine,
// it continues there: mask, weights and every number but times are those of a
// solve that was never interrupted. docs/adr/0021-checkpoints.md says what is in
// it and why.
//
// It is opaque and only good for the program version and the engine that wrote
// it: a solve that cannot be continued exactly is refused, for the caller to
// begin it anew.
#ifndef SPARSEFW_CHECKPOINT_H_
#define SPARSEFW_CHECKPOINT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sparsefw {

struct CheckpointInfo {
  int sweep_point = 0;    // of SolveSweep; 0 of Solve
  int64_t iteration = 0;  // Frank-Wolfe steps that need not be taken again
  int64_t stage = 0;      // 0: it iterates; later stages are higher
};

struct CheckpointTiming {
  absl::Duration since_last;  // since the solve began, or the last attempt ended
  absl::Duration last_took;   // the last attempt, the sink's part included; 0 before
};

// Whether one is due every `period`, or less often where it takes long: never more
// than a hundredth of the time from the second one on.
inline bool DueEvery(absl::Duration period, const CheckpointTiming& timing) {
  return timing.since_last >= std::max(period, 100 * timing.last_took);
}

// Where checkpoints go; the latest complete one is what counts. Called on the
// thread that called Solve, which goes on when the call returns.
//
//   Due -> Begin -> Write, Write, ... -> Commit
//
// A checkpoint that fails costs the solve nothing: after an error of Begin,
// Write or Commit, or when the solve is stopped in between, Abandon is called and
// the solve goes on without.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;

  // Whether a checkpoint is to be written now. Called at report points and between
  // stages: must not take long. True where the process is about to end.
  virtual bool Due(const CheckpointTiming& timing) = 0;

  virtual absl::Status Begin(const CheckpointInfo& info) = 0;
  // The next bytes: 1 MiB at most, often only a few. They are gone afterwards.
  virtual absl::Status Write(std::span<const std::byte> piece) = 0;
  // All has been written. Once it returns OK the solve counts on nothing older.
  virtual absl::Status Commit() = 0;
  virtual void Abandon() = 0;
};

// How far the solve was that wrote this checkpoint, from its first fields alone. Empty where they
// are not those of one of this version; otherwise Solve may still refuse it.
std::optional<CheckpointInfo> PeekCheckpoint(std::span<const std::byte> bytes);

// How a solve takes part in it; by default not at all.
struct Checkpoints {
  CheckpointSink* sink = nullptr;  // may be null
  // All bytes of a checkpoint, such as a mapped file; empty: from the start. Read
  // from beginning to end, once for its checksum, before the first new step.
  std::span<const std::byte> resume = {};
};

}  // namespace sparsefw

#endif  // SPARSEFW_CHECKPOINT_H_
