// Jobs that wait until their working memory is free.
#include <string>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;

// The label of a job is its need; 10 bytes are there, and workers to spare.
class MemoryTest : public JobManagerTest {
 protected:
  MemoryTest() {
    runner_.working_bytes_of = [](const JobSpec& spec) {
      return std::stoll(spec.labels.at("bytes"));
    };
    JobManagerOptions options;
    options.workers = 4;
    options.working_memory_bytes = 10;
    Restart(options);
  }
  Job SubmitOf(int64_t bytes, int priority = 0,
               absl::Duration deadline = absl::InfiniteDuration()) {
    JobSpec spec;
    spec.labels["bytes"] = std::to_string(bytes);
    spec.priority = priority;
    spec.deadline = deadline;
    return Submit(spec);
  }
  void ExpectRuns(size_t n, const Job& job) { EXPECT_EQ(runner_.WaitForRun(n).name, job.name); }
  void End(const Job& job) { RunTo(job.name, ResultWith(StopCause::kIterations)); }
};

TEST_F(MemoryTest, JobsThatFitRunTogetherAndOthersWait) {
  const Job four = SubmitOf(4);
  const Job six = SubmitOf(6);
  runner_.WaitForRun(1);
  EXPECT_EQ(manager_->working_bytes(), 10);
  const Job one = SubmitOf(1);
  EXPECT_EQ(manager_->queued(), 1);
  End(six);
  ExpectRuns(2, one);
  EXPECT_EQ(Get(four.name).state, JobState::kRunning);
}

TEST_F(MemoryTest, ABigJobIsNotOvertakenBySmallOnesOfItsPriority) {
  const Job first = SubmitOf(6);
  ExpectRuns(0, first);
  const Job big = SubmitOf(10);
  const Job small = SubmitOf(1);
  EXPECT_EQ(Get(big.name).queue_position, 0);
  EXPECT_EQ(Get(small.name).queue_position, 1);
  const Job urgent = SubmitOf(2, /*priority=*/1);
  ExpectRuns(1, urgent);
  End(first);
  EXPECT_EQ(runner_.runs(), 2U)
      << "8 of 10 are free: neither the big one nor, before it, the small";
  End(urgent);
  ExpectRuns(2, big);
  End(big);
  ExpectRuns(3, small);
}

TEST_F(MemoryTest, WhenTheBigJobLeavesTheQueueTheOthersRun) {
  const Job first = SubmitOf(6);
  ExpectRuns(0, first);
  const Job cancelled = SubmitOf(10);
  const Job late = SubmitOf(10, 0, absl::Seconds(5));
  const Job small = SubmitOf(4);
  ASSERT_THAT(manager_->Cancel(cancelled.name), IsOk());
  EXPECT_EQ(runner_.runs(), 1U);
  clock_.Advance(absl::Seconds(5));
  ExpectRuns(1, small);
  EXPECT_EQ(Watch(late.name)->WaitForEnd().state, JobState::kFailed);
}

TEST_F(MemoryTest, AJobBeyondTheLimitRunsAlone) {
  const Job first = SubmitOf(1);
  ExpectRuns(0, first);
  const Job huge = SubmitOf(11);
  EXPECT_EQ(manager_->queued(), 1);
  End(first);
  ExpectRuns(1, huge);
}

}  // namespace
}  // namespace sparsefw::server
