#include "server/app/observe/job_counts.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kCountsPeriod = absl::Minutes(1);

int64_t CountOf(const std::map<JobState, int64_t>& counts, JobState state) {
  const auto found = counts.find(state);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::optional<EndedJobs> JobCounts::Ended() {
  const auto counts = store_.CountByState();
  const absl::Time now = absl::Now();
  std::optional<EndedJobs> last;
  {
    MutexLock lock(mutex_);
    if (counts.ok()) {
      last_ = EndedJobs{CountOf(*counts, JobState::kSucceeded), CountOf(*counts, JobState::kFailed),
                        CountOf(*counts, JobState::kCancelled)};
      return last_;
    }
    ++failures_;
    if (now < next_log_) return last_;
    next_log_ = now + kCountsPeriod;
    last = last_;
  }
  logger_.Log(LogLevel::kWarning, "jobs_not_counted", {{"error", counts.status().ToString()}});
  return last;
}

int64_t JobCounts::failures() const {
  MutexLock lock(mutex_);
  return failures_;
}

}  // namespace sparsefw::server
