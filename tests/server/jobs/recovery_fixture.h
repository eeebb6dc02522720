// Managers one after the other on one durable store.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_

#include <algorithm>
#include <future>
#include <string>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {

class RecoveryTest : public JobManagerTest {
 protected:
  RecoveryTest() { store_.is_durable = true; }

  // A job that an earlier process has left in the store.
  Job Left(const std::string& name, JobState state = JobState::kQueued, int attempts = 0) {
    Job job;
    job.name = name;
    job.state = state;
    job.create_time = clock_.Now();
    job.revision = 1;
    job.state_revision = 1;
    job.states = {{JobState::kQueued, 1}};
    job.attempts = attempts;
    job.vain_attempts = std::max(0, attempts - 1);
    if (state == JobState::kRunning) {
      job.revision = 5;
      job.state_revision = 2;
      job.states.push_back({JobState::kRunning, 2});
      job.progress.emplace().iteration = 300;
      // Its runs have come no further.
      job.reported = {0, 300};
      job.start_time = clock_.Now();
    }
    return job;
  }
  void Store(const Job& job, const std::string& request_id = "") {
    ASSERT_THAT(store_.Insert(job, request_id, "body", {}), testing::IsOk());
  }
  RecoveredJobs Recover() {
    auto recovered = manager_->Recover();
    EXPECT_THAT(recovered, testing::IsOk());
    return recovered.value_or(RecoveredJobs());
  }
  // The manager's end and its successor's start.
  RecoveredJobs StartAgain(JobManagerOptions options = {}) {
    manager_.reset();
    Restart(options);
    return Recover();
  }
  // The process ends in the middle of the job's run, and the next one takes over what is stored.
  RecoveredJobs KillDuringRun(const std::string& name, JobManagerOptions options = {}) {
    const Job left = *store_.Get(name);
    EXPECT_EQ(left.state, JobState::kRunning);
    runner_.obey_stop = true;
    manager_.reset();
    runner_.obey_stop = false;
    EXPECT_THAT(store_.Update(left), testing::IsOk());
    Restart(options);
    return Recover();
  }
  // Drains on another thread.
  std::future<void> Drain(absl::Duration grace) {
    return std::async(std::launch::async, [this, grace] { manager_->Drain(grace); });
  }
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_
