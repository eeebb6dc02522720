// How many coordinates toggle from iteration to iteration, as far as the host
// needs to know: it decides by that how U is to be updated.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_HISTORY_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_HISTORY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/iteration/step_state.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/stream.h"

namespace sparsefw::cuda {

// Iterations come in epochs of a fixed length, which begin at fixed iterations.
// A decision for an epoch depends on the epoch before the last: the device
// has the one in between to work on while the host learns of it.
class ToggleHistory {
 public:
  // An epoch is decided by the counts at the ends of the two epochs before the
  // last, while that of the last is being recorded.
  static constexpr size_t kSlots = 4;
  struct Count {
    int64_t epoch = -1;
    uint64_t toggled = 0;  // up to its end
  };
  // The history so far, for a checkpoint.
  struct State {
    int64_t first_toggles = 0;
    Count counts[kSlots];
  };

  ToggleHistory() = default;
  // first_toggles: of iteration 0, which stands for the first two epochs. The
  // stream must outlive it.
  static absl::StatusOr<ToggleHistory> Create(int64_t epoch_iterations, int64_t first_toggles,
                                              cudaStream_t stream);

  int64_t EpochOf(int64_t iteration) const { return iteration / length_; }
  bool BeginsEpoch(int64_t iteration) const { return iteration % length_ == 0; }

  // Enqueues a copy of the state as it is at the end of an epoch.
  absl::Status Record(int64_t epoch, const StepState* state);
  // Waits for the end of an epoch; false: the iteration stopped before it.
  absl::StatusOr<bool> Learn(int64_t epoch);
  // Takes what has been recorded before `iteration`, the stream being idle.
  void LearnUpTo(int64_t iteration);

  // Toggles an iteration that the decision for an epoch rests on. Learn(epoch - 2) was true.
  double TogglesFor(int64_t epoch) const;

  // After LearnUpTo; Restore after Create.
  State state() const;
  void Restore(const State& state);

 private:
  // Where the device writes its states, with the events that say when it has. Used again by the
  // histories that follow on the device (device_pool.h).
  struct Recording {
    PinnedBuffer<StepState> states;
    Event recorded[kSlots];
  };
  class GiveBack {
   public:
    explicit GiveBack(int device) : device_(device) {}
    GiveBack() : GiveBack(0) {}
    void operator()(Recording* recording) const;

   private:
    int device_;
  };
  using OwnRecording = std::unique_ptr<Recording, GiveBack>;
  static absl::StatusOr<OwnRecording> TakeRecording();
  static size_t SlotOf(int64_t epoch) { return static_cast<size_t>(epoch) % kSlots; }
  void Take(int64_t epoch);

  cudaStream_t stream_ = nullptr;
  int64_t length_ = 1;
  int64_t first_toggles_ = 0;
  Count counts_[kSlots];
  OwnRecording recording_;  // null before Create
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_HISTORY_H_
