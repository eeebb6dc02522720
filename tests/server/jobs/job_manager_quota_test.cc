// Limits of tenants on queued and running jobs, also of jobs of an earlier process.
#include <map>
#include <string>
#include <string_view>

#include "server/jobs/job_store.h"
#include "sparsefw/reason.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

class QuotaTest : public JobManagerTest {
 protected:
  QuotaTest() { RestartWith(JobManagerOptions()); }
  void RestartWith(JobManagerOptions options) {
    options.limits_of = [this](std::string_view tenant) {
      MutexLock lock(mutex_);
      return limits_[std::string(tenant)];
    };
    Restart(options);
  }
  void Set(const std::string& tenant, std::optional<int64_t> queued,
           std::optional<int64_t> running = {}) {
    {
      MutexLock lock(mutex_);
      limits_[tenant].max_queued_jobs = queued;
      limits_[tenant].max_running_jobs = running;
    }
    manager_->OnLimitsChanged();
  }
  absl::Status TrySubmit(const std::string& tenant) {
    return manager_->Submit({}, "", {"body"}, Owner{tenant, ""}, false).status();
  }

  Mutex mutex_;
  std::map<std::string, TenantLimits> limits_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(QuotaTest, QueuedJobsAreLimitedByTenant) {
  SubmitRunning();
  Set("alice", 2);
  Submit({}, "", "alice");
  Submit({}, "", "alice");
  const absl::Status refused = TrySubmit("alice");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_QUEUED_JOBS", "alice",
                                "max-queued-jobs of 2", "are 2"));
  const ReasonMetadata metadata = ReasonMetadataOf(refused);
  EXPECT_EQ(metadata.at("quota"), "max-queued-jobs");
  EXPECT_EQ(metadata.at("limit"), "2");
  EXPECT_EQ(metadata.at("current"), "2");
  EXPECT_EQ(metadata.at("retry_delay_ms"), "1000");
  EXPECT_THAT(TrySubmit("bob"), IsOk());
  Set("alice", 3);
  EXPECT_THAT(TrySubmit("alice"), IsOk()) << "another limit counts at once";
  Set("alice", 1);
  EXPECT_THAT(TrySubmit("alice"),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_QUEUED_JOBS", "of 1", "are 3"));
  EXPECT_EQ(manager_->queued(), 4) << "what was accepted stays";
}

TEST_F(QuotaTest, WaitingDoesNotHelpWhereNoneMayBeQueued) {
  Set("alice", 0);
  const absl::Status refused = TrySubmit("alice");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_QUEUED_JOBS"));
  EXPECT_FALSE(ReasonMetadataOf(refused).contains("retry_delay_ms"));
}

TEST_F(QuotaTest, ARepeatedRequestIsAnsweredWhateverTheLimit) {
  SubmitRunning();
  Set("alice", 1);
  const Job job = Submit({}, "request", "alice");
  EXPECT_EQ(Submit({}, "request", "alice").name, job.name);
}

TEST_F(QuotaTest, JobsBeyondTheRunningLimitWaitInTheQueue) {
  JobManagerOptions options;
  options.workers = 3;
  RestartWith(options);
  Set("alice", std::nullopt, 1);
  const Job first = Submit({}, "", "alice");
  EXPECT_EQ(runner_.WaitForRun(0).name, first.name);
  const Job second = Submit({}, "", "alice");
  const Job third = Submit({}, "", "alice");
  const Job bobs = Submit({}, "", "bob");
  EXPECT_EQ(runner_.WaitForRun(1).name, bobs.name) << "workers are free, but not for alice";
  RunTo(first.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(runner_.WaitForRun(2).name, second.name);
  EXPECT_EQ(Get(third.name).state, JobState::kQueued);
  Set("alice", std::nullopt, 2);
  EXPECT_EQ(runner_.WaitForRun(3).name, third.name);
}

TEST_F(QuotaTest, KeptJobsAreLimitedByTenantAlsoOnceTheyHaveEnded) {
  const Job first = Submit({}, "", "alice");
  {
    MutexLock lock(mutex_);
    limits_["alice"].max_job_bytes = KeptBytes(first);
  }
  const auto refused =
      StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_JOB_BYTES", "alice", "max-job-bytes");
  EXPECT_THAT(TrySubmit("alice"), refused);
  RunTo(first.name, ResultWith(StopCause::kIterations));
  const absl::Status status = TrySubmit("alice");
  EXPECT_THAT(status, refused) << "an ended job counts, too";
  EXPECT_EQ(ReasonMetadataOf(status).at("quota"), "max-job-bytes");
  EXPECT_THAT(TrySubmit("bob"), IsOk());
  EXPECT_EQ(Get(first.name).state, JobState::kSucceeded) << "nothing is removed for another";
  ASSERT_THAT(manager_->Delete(first.name), IsOk());
  EXPECT_THAT(TrySubmit("alice"), IsOk());
}

TEST_F(QuotaTest, KeptJobsAreLimitedTogetherAndByTheDisk) {
  runner_.obey_stop = true;  // the job may run already where the server is restarted
  const int64_t bytes = KeptBytes(Submit({}, "", "alice"));
  JobManagerOptions options;
  options.max_job_bytes = 2 * bytes;
  int64_t disk = 0;
  options.disk_room = [&disk] { return disk; };
  RestartWith(options);
  EXPECT_THAT(TrySubmit("bob"), StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET"));
  disk = 9 * bytes;
  EXPECT_THAT(TrySubmit("bob"), StatusIs(absl::StatusCode::kOk));
  EXPECT_THAT(TrySubmit("bob"), StatusIs(absl::StatusCode::kResourceExhausted, "JOBS_FULL"));
}

TEST_F(QuotaTest, JobsOfAnEarlierProcessCount) {
  store_.is_durable = true;
  for (const std::string name : {"jobs/a", "jobs/b", "jobs/c"}) {
    Job job;
    job.name = name;
    job.owner.tenant = "alice";
    job.create_time = clock_.Now();
    job.revision = job.state_revision = 1;
    job.states = {{JobState::kQueued, 1}};
    ASSERT_THAT(store_.Insert(job, "", "", {}), IsOk());
  }
  JobManagerOptions options;
  options.workers = 2;
  RestartWith(options);
  Set("alice", 2, 1);
  ASSERT_THAT(manager_->Recover(), IsOk());
  EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/a");
  EXPECT_EQ(manager_->queued(), 2);
  EXPECT_THAT(TrySubmit("alice"),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_QUEUED_JOBS", "are 2"));
}

}  // namespace
}  // namespace sparsefw::server
