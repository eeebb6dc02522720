#include "server/jobs/scheduling/scheduler.h"

#include <algorithm>
#include <optional>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {

Scheduler::Scheduler(SchedulerOptions options, Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      share_(options_.limits_of),
      claims_(options_.starvation_limit),
      pool_(options_.devices) {}

absl::Status Scheduler::CheckPossible(const DeviceNeed& need) const {
  MutexLock lock(mutex_);
  return pool_.CheckPossible(need);
}

absl::Status Scheduler::Enqueue(const JobPtr& job) {
  MutexLock lock(mutex_);
  SPARSEFW_RETURN_IF_ERROR(pool_.CheckPossible(job->need.device));
  queue_.Push(job);
  share_.Queued(job->tenant);
  pool_.Ref(job->need.device);
  work_.NotifyAll();  // one alone might reach a job that waits to move
  if (queue_.next_deadline() == job->deadline) deadline_.NotifyOne();
  return absl::OkStatus();
}

void Scheduler::Remove(const ActiveJob& job) {
  EvictedGrams evicted;
  {
    MutexLock lock(mutex_);
    if (!queue_.Remove(job.name)) return;
    share_.Dequeued(job.tenant);
    pool_.Unref(job.need.device, &evicted);
    work_.NotifyAll();  // it may have been the first, for which later jobs waited
  }
  Free(std::move(evicted));
}

void Scheduler::OnStopRequested() {
  MutexLock lock(mutex_);
  work_.NotifyAll();
}

Scheduler::Lease Scheduler::NextJob() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (Lease lease = TakeFromQueue(); lease.job != nullptr) {
      // One notification may stand for several jobs: the next may fit too.
      if (!queue_.empty()) work_.NotifyAll();
      return lease;
    }
    clock_.WaitUntil(work_, mutex_, claims_.next());
  }
  return {};
}

Scheduler::Lease Scheduler::TakeFromQueue() {
  const absl::Time now = clock_.SteadyNow();
  if (!starting_ || alone_ || queue_.empty()) {
    claims_.Update({}, true, now);  // NextJob waits for no claim to lapse
    return {};
  }
  share_.ChargeRunning(now);
  PlacementPass pass(pool_,
                     {.free_bytes = options_.working_memory_bytes - working_bytes_,
                      .idle = working_bytes_ == 0,
                      .free_worker = on_cpu_ < options_.workers,
                      .nothing_runs = leases_ == 0},
                     claims_.Lapsed(now));
  for (const ActiveJob* moving : moving_) pass.Claim(moving->need.device);
  std::string device;
  JobPtr taken = TakePlaced(pass, &device);
  claims_.Update(pass.held_back(), taken == nullptr, now);
  if (taken == nullptr) return {};
  share_.Started(*taken, !device.empty(), now);
  share_.Dequeued(taken->tenant);
  Lease lease = {.job = std::move(taken)};
  lease.placement.deadline = lease.job->deadline;
  working_bytes_ += lease.job->need.working_bytes;
  ++leases_;
  alone_ = lease.job->need.alone;
  if (lease.job->deadline != absl::InfiniteFuture()) {
    lease_deadlines_.emplace(lease.job->deadline + kDeadlineSlack, lease.job);
    deadline_.NotifyOne();
  }
  if (device.empty()) {
    ++on_cpu_;
  } else {
    ReserveDevice(lease, device);
  }
  return lease;
}

Scheduler::JobPtr Scheduler::TakePlaced(PlacementPass& pass, std::string* device) {
  std::vector<std::string> forgoing;
  JobPtr taken;
  for (const auto& [served, tenant] : share_.waiting()) {
    if (pass.Full()) break;
    if (!share_.MayRun(tenant)) {
      forgoing.push_back(tenant);
      continue;
    }
    taken = queue_.TakeFirst(tenant, [&](const ActiveJob& job) {
      if (pass.Full()) return JobQueue::Look::kStop;
      std::optional<std::string> place = pass.Place(job.need);
      if (!place) return JobQueue::Look::kPass;
      *device = *std::move(place);
      return JobQueue::Look::kTake;
    });
    if (taken != nullptr) break;
  }
  for (const std::string& tenant : forgoing) share_.Forgo(tenant);
  return taken;
}

void Scheduler::ReserveDevice(Lease& lease, const std::string& device) {
  lease.placement.device = device;
  lease.placement.gram = pool_.Reserve(device, lease.job->need.device, &lease.evicted);
}

void Scheduler::Release(Lease& lease) {
  lease.placement.gram.reset();
  EvictedGrams evicted = std::move(lease.evicted);
  {
    MutexLock lock(mutex_);
    const JobNeed& need = lease.job->need;
    share_.Ended(*lease.job, clock_.SteadyNow());
    lease_deadlines_.erase({lease.job->deadline + kDeadlineSlack, lease.job});
    working_bytes_ -= need.working_bytes;
    --leases_;
    alone_ = false;
    if (lease.placement.device.empty()) {
      --on_cpu_;
    } else {
      pool_.Release(lease.placement.device, need.device, &evicted);
    }
    pool_.Unref(need.device, &evicted);
    work_.NotifyAll();
  }
  Free(std::move(evicted));
}

void Scheduler::FreeEvicted(Lease& lease) { Free(std::exchange(lease.evicted, {})); }

void Scheduler::Free(EvictedGrams evicted) {
  if (evicted.empty()) return;
  for (EvictedGram& one : evicted) one.gram.reset();
  MutexLock lock(mutex_);
  for (const EvictedGram& one : evicted) pool_.ReleaseBytes(one);
  work_.NotifyAll();
}

Scheduler::Expired Scheduler::NextExpired() {
  Expired expired;
  EvictedGrams evicted;
  {
    MutexLock lock(mutex_);
    while (!stopping_) {
      const absl::Time now = clock_.SteadyNow();
      expired.queued = queue_.TakeExpired(now);
      while (!lease_deadlines_.empty() && lease_deadlines_.begin()->first <= now) {
        expired.leased.push_back(lease_deadlines_.begin()->second);
        lease_deadlines_.erase(lease_deadlines_.begin());
      }
      if (!expired.empty()) break;
      absl::Time next = queue_.next_deadline();
      if (!lease_deadlines_.empty()) next = std::min(next, lease_deadlines_.begin()->first);
      clock_.WaitUntil(deadline_, mutex_, next);
    }
    for (const JobPtr& job : expired.queued) {
      share_.Dequeued(job->tenant);
      pool_.Unref(job->need.device, &evicted);
    }
    work_.NotifyAll();  // later jobs may have waited for one of them
  }
  Free(std::move(evicted));
  return expired;
}

std::vector<std::pair<Scheduler::JobPtr, absl::Status>> Scheduler::LoseDevice(
    const std::string& device, bool* newly_lost) {
  std::vector<std::pair<JobPtr, absl::Status>> stranded;
  EvictedGrams evicted;
  {
    MutexLock lock(mutex_);
    *newly_lost = pool_.MarkLost(device, &evicted);
    if (!*newly_lost) return {};
    for (const JobPtr& queued : queue_.All()) {
      absl::Status possible = pool_.CheckPossible(queued->need.device);
      if (!possible.ok()) stranded.emplace_back(queued, std::move(possible));
    }
    work_.NotifyAll();  // jobs that wait to move may have nowhere to go now
  }
  Free(std::move(evicted));
  return stranded;
}

absl::Status Scheduler::MoveToAnotherDevice(Lease& lease, const absl::Status& lost) {
  const ActiveJob& job = *lease.job;
  const DeviceNeed& need = job.need.device;
  lease.placement.gram.reset();
  MutexLock lock(mutex_);
  moving_.push_back(&job);
  absl::Status status = lost;
  while (pool_.CheckPossible(need).ok()) {
    if (job.stop.requested()) {
      status = absl::CancelledError("the job was cancelled while it waited for another device");
      break;
    }
    if (const std::optional<std::string> device = pool_.Choose(need)) {
      pool_.Release(lease.placement.device, need, &lease.evicted);
      ReserveDevice(lease, *device);
      status = absl::OkStatus();
      break;
    }
    if (job.deadline <= clock_.SteadyNow()) {
      status = Refuse(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                      "the deadline passed while the job waited for another "
                      "device: its own was lost");
      break;
    }
    clock_.WaitUntil(work_, mutex_, job.deadline);
  }
  std::erase(moving_, &job);
  work_.NotifyAll();
  return status;
}

void Scheduler::StopStarting() {
  MutexLock lock(mutex_);
  starting_ = false;
}

void Scheduler::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  work_.NotifyAll();
  deadline_.NotifyAll();
  stopped_.NotifyAll();
}

void Scheduler::AwaitStop(absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  MutexLock lock(mutex_);
  while (!stopping_ && SteadyNow() < end) {
    stopped_.WaitFor(mutex_, absl::ToChronoNanoseconds(end - SteadyNow()));
  }
}

}  // namespace sparsefw::server
