// The bytes of a checkpoint: what stands around the fields of solver and engine.
//
//   "SFWCKPT" 0 | format version, u64 | field, field, ... | "SFWCEND" 0 |
//   bytes of all, u64 | CRC32C of all bytes before it, u32
//
// in the byte order of the machine; a field is what iteration_state.h says.
#ifndef SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_FILE_H_
#define SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/checkpoint.h"
#include "sparsefw/iteration_state.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw {

// Format of the frame and of the solver's fields. An engine's fields have a number of their own in
// its Backend::checkpoint_tag.
inline constexpr uint64_t kCheckpointFormat = 1;

// Passes bytes on to a sink in pieces. Once the sink has failed, everything fails.
class CheckpointWriter final : public StateWriter {
 public:
  // Both outlive it; stop may be null.
  CheckpointWriter(CheckpointSink& sink, const StopSignal* stop) : sink_(sink), stop_(stop) {}

  // Begin before the first field, End after the last: they write the frame.
  absl::Status Begin(const CheckpointInfo& info);
  absl::Status Write(std::span<const std::byte> bytes) override;
  absl::Status End();

  // Whether what went wrong is the sink's matter alone.
  bool sink_failed() const { return sink_failed_; }

 private:
  absl::Status OfSink(absl::Status status);

  CheckpointSink& sink_;
  const StopSignal* const stop_;
  uint64_t bytes_ = 0;
  uint32_t crc_ = 0;
  bool sink_failed_ = false;
};

// The fields of a checkpoint, whose checksum nobody has looked at.
// Errors: FailedPrecondition (CHECKPOINT_INVALID)
absl::StatusOr<StateReader> OpenUnchecked(std::span<const std::byte> bytes);

// The fields of a checkpoint, all of whose bytes have been looked at.
// Errors: FailedPrecondition (CHECKPOINT_INVALID), Cancelled
absl::StatusOr<StateReader> OpenCheckpoint(std::span<const std::byte> bytes,
                                           const StopSignal* stop);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_CHECKPOINT_FILE_H_
