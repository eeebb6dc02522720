// Managers one after the other on one durable store.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_

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
    if (state == JobState::kRunning) {
      job.revision = 5;
      job.state_revision = 2;
      job.states.push_back({JobState::kRunning, 2});
      job.progress.emplace().iteration = 300;
      job.start_time = clock_.Now();
    }
    return job;
  }
  void Store(const Job& job, const std::string& request_id = "") {
    ASSERT_THAT(store_.Insert(job, request_id, "body"), testing::IsOk());
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
  // Drains on another thread.
  std::future<void> Drain(absl::Duration grace) {
    return std::async(std::launch::async, [this, grace] { manager_->Drain(grace); });
  }
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_RECOVERY_FIXTURE_H_
