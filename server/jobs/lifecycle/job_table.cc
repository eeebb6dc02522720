#include "server/jobs/lifecycle/job_table.h"

namespace sparsefw::server {
namespace {

template <typename Jobs>
std::vector<JobTable::JobPtr> ValuesOf(const Jobs& jobs) {
  std::vector<JobTable::JobPtr> values;
  values.reserve(jobs.size());
  for (const auto& [name, job] : jobs) values.push_back(job);
  return values;
}

}  // namespace

void JobTable::BeginSubmission() {
  MutexLock lock(mutex_);
  ++submissions_;
  Changed();
}

void JobTable::EndSubmission() {
  MutexLock lock(mutex_);
  --submissions_;
  Changed();
}

void JobTable::Add(const JobPtr& job) {
  MutexLock lock(mutex_);
  active_.emplace(job->name, job);
  Changed();
}

void JobTable::Remove(std::string_view name) {
  MutexLock lock(mutex_);
  if (const auto found = active_.find(name); found != active_.end()) active_.erase(found);
  Changed();
}

void JobTable::CountRunning() {
  MutexLock lock(mutex_);
  ++running_;
}

void JobTable::Ended(const JobPtr& job, bool was_running, bool stored) {
  MutexLock lock(mutex_);
  if (was_running) --running_;
  active_.erase(job->name);
  if (!stored) unstored_.emplace(job->name, job);
  ++announcing_;
}

void JobTable::Announced() {
  MutexLock lock(mutex_);
  --announcing_;
  Changed();
}

void JobTable::KeptBack(const JobPtr& job, bool was_running) {
  MutexLock lock(mutex_);
  if (was_running) --running_;
  unstored_.emplace(job->name, job);
  Changed();
}

void JobTable::Suspended() {
  MutexLock lock(mutex_);
  --running_;
  Changed();
}

JobTable::JobPtr JobTable::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  if (const auto found = active_.find(name); found != active_.end()) return found->second;
  const auto unstored = unstored_.find(name);
  return unstored == unstored_.end() ? nullptr : unstored->second;
}

std::vector<JobTable::JobPtr> JobTable::NotEnded() const {
  MutexLock lock(mutex_);
  return ValuesOf(active_);
}

std::vector<JobTable::JobPtr> JobTable::Unstored() const {
  MutexLock lock(mutex_);
  return ValuesOf(unstored_);
}

void JobTable::ForgetUnstored(std::string_view name) {
  MutexLock lock(mutex_);
  if (const auto found = unstored_.find(name); found != unstored_.end()) unstored_.erase(found);
}

void JobTable::WaitForChange(int64_t seen, Clock& clock, absl::Time time) {
  MutexLock lock(mutex_);
  while (version_ == seen && clock.SteadyNow() < time) clock.WaitUntil(changed_, mutex_, time);
}

void JobTable::Changed() {
  ++version_;
  changed_.NotifyAll();
}

}  // namespace sparsefw::server
