#include "core/src/cuda/iteration/toggle_history.h"

#include <algorithm>
#include <memory>

#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

void ToggleHistory::GiveBack::operator()(Recording* recording) const {
  PoolOf<std::unique_ptr<Recording>>(device_).Give(std::unique_ptr<Recording>(recording));
}

absl::StatusOr<ToggleHistory::OwnRecording> ToggleHistory::TakeRecording() {
  int device = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  std::unique_ptr<Recording> recording =
      PoolOf<std::unique_ptr<Recording>>(device).Take().value_or(std::make_unique<Recording>());
  if (recording->states.data() == nullptr) {
    for (Event& event : recording->recorded) {
      SPARSEFW_ASSIGN_OR_RETURN(event, CreateEvent());
    }
    SPARSEFW_ASSIGN_OR_RETURN(recording->states, PinnedBuffer<StepState>::Create(kSlots));
  }
  // The device may yet have to write what an earlier history recorded last.
  for (const Event& event : recording->recorded) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(event.get()));
  }
  return OwnRecording(recording.release(), GiveBack(device));
}

absl::StatusOr<ToggleHistory> ToggleHistory::Create(int64_t epoch_iterations, int64_t first_toggles,
                                                    cudaStream_t stream) {
  ToggleHistory history;
  history.stream_ = stream;
  history.length_ = epoch_iterations;
  history.first_toggles_ = first_toggles;
  SPARSEFW_ASSIGN_OR_RETURN(history.recording_, TakeRecording());
  for (size_t slot = 0; slot < kSlots; ++slot) {
    history.recording_->states.data()[slot].recurrence.iteration = -1;
  }
  return history;
}

absl::Status ToggleHistory::Record(int64_t epoch, const StepState* state) {
  const size_t slot = SlotOf(epoch);
  SPARSEFW_RETURN_IF_ERROR(
      EnqueueCopy(&recording_->states.data()[slot], state, 1, cudaMemcpyDeviceToHost, stream_));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventRecord(recording_->recorded[slot].get(), stream_));
  return absl::OkStatus();
}

absl::StatusOr<bool> ToggleHistory::Learn(int64_t epoch) {
  if (epoch < 0 || counts_[SlotOf(epoch)].epoch == epoch) return true;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(recording_->recorded[SlotOf(epoch)].get()));
  Take(epoch);
  return counts_[SlotOf(epoch)].epoch == epoch;
}

void ToggleHistory::LearnUpTo(int64_t iteration) {
  const int64_t ended = EpochOf(iteration);
  for (int64_t epoch = std::max<int64_t>(0, ended - 3); epoch < ended; ++epoch) Take(epoch);
}

// A state of another iteration is what was recorded after a stop at the gap.
void ToggleHistory::Take(int64_t epoch) {
  const StepState& state = recording_->states.data()[SlotOf(epoch)];
  if (state.recurrence.iteration == (epoch + 1) * length_)
    counts_[SlotOf(epoch)] = {epoch, state.toggled};
}

ToggleHistory::State ToggleHistory::state() const {
  State state = {.first_toggles = first_toggles_, .counts = {}};
  std::copy_n(counts_, kSlots, state.counts);
  return state;
}

void ToggleHistory::Restore(const State& state) {
  first_toggles_ = state.first_toggles;
  std::copy_n(state.counts, kSlots, counts_);
}

double ToggleHistory::TogglesFor(int64_t epoch) const {
  if (epoch < 2) return static_cast<double>(first_toggles_);
  const uint64_t before = epoch == 2 ? 0 : counts_[SlotOf(epoch - 3)].toggled;
  return static_cast<double>(counts_[SlotOf(epoch - 2)].toggled - before) /
         static_cast<double>(length_);
}

}  // namespace sparsefw::cuda
