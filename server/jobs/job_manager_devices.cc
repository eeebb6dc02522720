// Where jobs run, what they reserve there, and what happens when a device is lost.
#include <algorithm>
#include <utility>

#include "server/jobs/job_manager_impl.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

JobManagerImpl::Placed JobManagerImpl::NextJob() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (Placed placed = TakeFromQueue(); placed.active != nullptr) {
      // One notification may stand for several jobs: the next may fit too.
      if (!queue_.empty()) work_.NotifyOne();
      return placed;
    }
    work_.Wait(mutex_);
  }
  return {};
}

JobManagerImpl::Placed JobManagerImpl::TakeFromQueue() {
  if (!starting_ || queue_.empty()) return {};
  Placement placement(pool_, {.free_bytes = options_.working_memory_bytes - working_bytes_,
                              .idle = working_bytes_ == 0,
                              .free_worker = on_cpu_ < options_.workers});
  for (const ActiveJob* moving : moving_) placement.Claim(moving->need.device);
  std::string device;
  ActiveJobPtr taken = queue_.TakeFirst([&](const ActiveJob& active) {
    if (placement.Full()) return JobQueue::Look::kStop;
    std::optional<std::string> place = placement.Place(active.need);
    if (!place) return JobQueue::Look::kPass;
    device = *std::move(place);
    return JobQueue::Look::kTake;
  });
  if (taken == nullptr) return {};
  Placed placed = {.active = std::move(taken), .device = std::move(device)};
  Reserve(placed);
  return placed;
}

void JobManagerImpl::Reserve(Placed& placed) {
  working_bytes_ += placed.active->need.working_bytes;
  if (placed.device.empty()) {
    ++on_cpu_;
  } else {
    ReserveDevice(placed);
  }
}

void JobManagerImpl::ReserveDevice(Placed& placed) {
  placed.gram = pool_.Reserve(placed.device, placed.active->need.device, &placed.evicted);
}

void JobManagerImpl::Release(Placed& placed) {
  placed.gram.reset();
  EvictedGrams evicted = std::move(placed.evicted);
  {
    MutexLock lock(mutex_);
    const JobNeed& need = placed.active->need;
    working_bytes_ -= need.working_bytes;
    if (placed.device.empty()) {
      --on_cpu_;
    } else {
      pool_.Release(placed.device, need.device, &evicted);
    }
    pool_.Unref(need.device, &evicted);
    work_.NotifyAll();
  }
  Free(std::move(evicted));
}

void JobManagerImpl::Free(EvictedGrams evicted) {
  if (evicted.empty()) return;
  for (EvictedGram& one : evicted) one.gram.reset();
  MutexLock lock(mutex_);
  for (const EvictedGram& one : evicted) pool_.ReleaseBytes(one);
  work_.NotifyAll();
}

absl::Status JobManagerImpl::CheckPossible(const DeviceNeed& need) const {
  MutexLock lock(mutex_);
  return pool_.CheckPossible(need);
}

absl::StatusOr<JobResult> JobManagerImpl::RunPlaced(Placed& placed, const Job& job,
                                                    JobRunner::Inputs& inputs) {
  for (bool again = false;; again = true) {
    Free(std::exchange(placed.evicted, {}));
    inputs.device = placed.device;
    inputs.shared_gram = placed.gram;
    absl::StatusOr<JobResult> outcome = CallRunner(job, *placed.active, inputs);
    inputs.shared_gram.reset();
    if (placed.device.empty() || ReasonOf(outcome.status()) != "DEVICE_LOST") return outcome;
    LoseDevice(placed.device, job, outcome.status());
    if (again) return outcome;
    SPARSEFW_RETURN_IF_ERROR(MoveToAnotherDevice(placed, outcome.status()));
  }
}

void JobManagerImpl::LoseDevice(const std::string& device, const Job& job,
                                const absl::Status& error) {
  std::vector<std::pair<ActiveJobPtr, absl::Status>> stranded;
  EvictedGrams evicted;
  {
    MutexLock lock(mutex_);
    if (!pool_.MarkLost(device, &evicted)) return;
    for (const ActiveJobPtr& queued : queue_.All()) {
      absl::Status possible = pool_.CheckPossible(queued->need.device);
      if (!possible.ok()) stranded.emplace_back(queued, std::move(possible));
    }
    work_.NotifyAll();  // jobs that wait to move may have nowhere to go now
  }
  Free(std::move(evicted));
  listener_.OnDeviceLost(device, job, error);
  for (auto& [active, possible] : stranded) {
    End(active, JobState::kQueued, {JobState::kFailed, std::move(possible), std::nullopt});
  }
}

absl::Status JobManagerImpl::MoveToAnotherDevice(Placed& placed, const absl::Status& lost) {
  const ActiveJob& active = *placed.active;
  const DeviceNeed& need = active.need.device;
  placed.gram.reset();
  MutexLock lock(mutex_);
  moving_.push_back(&active);
  absl::Status status = lost;
  while (pool_.CheckPossible(need).ok()) {
    if (active.stop.requested()) {
      status = absl::CancelledError("the job was cancelled while it waited for another device");
      break;
    }
    if (const std::optional<std::string> device = pool_.Choose(need)) {
      pool_.Release(placed.device, need, &placed.evicted);
      placed.device = *device;
      ReserveDevice(placed);
      status = absl::OkStatus();
      break;
    }
    if (active.deadline <= clock_.Now()) {
      status = WithReason(
          absl::DeadlineExceededError("the deadline passed while the job waited for another "
                                      "device: its own was lost"),
          "DEADLINE_EXCEEDED");
      break;
    }
    clock_.WaitUntil(work_, mutex_, active.deadline);
  }
  std::erase(moving_, &active);
  work_.NotifyAll();
  return status;
}

}  // namespace sparsefw::server
