// Jobs that no later process runs again: cancelled ones, and those of a lost stream.
#include <string>

#include "sparsefw/reason.h"
#include "tests/server/jobs/recovery_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using testing::StatusIs;

using NotAgainTest = RecoveryTest;

// A kill between the answer to a cancel and the end of the run: the store has what the
// answer promised.
TEST_F(NotAgainTest, ACancelIsStoredBeforeItIsAnswered) {
  const Job job = SubmitRunning();
  Report(job.name, 100);
  const Job before = Get(job.name);
  EXPECT_FALSE(store_.Get(job.name)->cancel_requested);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job answer, manager_->Cancel(job.name));
  EXPECT_EQ(answer.state, JobState::kRunning);
  EXPECT_EQ(answer.revision, before.revision) << "nothing that a watcher sees has changed";
  const Job stored = *store_.Get(job.name);
  EXPECT_TRUE(stored.cancel_requested);
  EXPECT_EQ(stored.progress->iteration, 100);
  RunTo(job.name, ResultWith(StopCause::kCancelled));

  Job left = stored;  // what a killed process would have left
  left.name = "jobs/left";
  Store(left);
  const RecoveredJobs recovered = StartAgain();
  EXPECT_EQ(recovered.cancelled, 1);
  EXPECT_EQ(recovered.queued + recovered.interrupted + recovered.failed, 0);
  const Job ended = Get("jobs/left");
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_THAT(ended.error, IsOk()) << "its caller wanted that";
  EXPECT_GT(ended.revision, stored.revision);
  EXPECT_EQ(ended.end_time, clock_.Now());
  EXPECT_EQ(runner_.runs(), 1u);
  EXPECT_THAT(runner_.discarded(), ElementsAre("jobs/left"));
}

TEST_F(NotAgainTest, ACancelThatCannotBeStoredIsNotAnswered) {
  const Job job = SubmitRunning();
  store_.update_fault = [](const Job&) { return absl::ResourceExhaustedError("full"); };
  EXPECT_THAT(manager_->Cancel(job.name),
              StatusIs(absl::StatusCode::kResourceExhausted, "", "full"));
  EXPECT_TRUE(runner_.stop_requested(job.name)) << "it stops all the same";
  store_.update_fault = [](const Job&) { return absl::OkStatus(); };
  EXPECT_THAT(manager_->Cancel(job.name), IsOk());
  EXPECT_TRUE(store_.Get(job.name)->cancel_requested);
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kCancelled)).state, JobState::kCancelled);
}

TEST_F(NotAgainTest, AJobThatEndsWithItsStreamDoesNotOutliveAKill) {
  for (const JobState state : {JobState::kQueued, JobState::kRunning}) {
    Job job = Left("jobs/" + std::string(NameOf(state)), state, 1);
    job.spec.ends_with_stream = true;
    Store(job);
  }
  EXPECT_EQ(Recover().cancelled, 2);
  for (const char* name : {"jobs/queued", "jobs/running"}) {
    const Job job = Get(name);
    EXPECT_EQ(job.state, JobState::kCancelled);
    EXPECT_THAT(job.error, StatusIs(absl::StatusCode::kCancelled, "STREAM_LOST", name, "detach"));
  }
  EXPECT_EQ(runner_.prepared(), 0);
}

// Its client is told to come back (DRAINING), so it does not end with the stream.
TEST_F(NotAgainTest, AJobThatEndsWithItsStreamGoesOnAfterADrain) {
  runner_.obey_stop = true;
  JobSpec spec;
  spec.ends_with_stream = true;
  const Job running = Submit(spec);
  runner_.WaitForRun(0);
  const Job queued = Submit(spec);
  const RecoveredJobs recovered = StartAgain();
  EXPECT_EQ(recovered.queued, 2);
  EXPECT_EQ(recovered.cancelled, 0);
  EXPECT_FALSE(store_.Get(queued.name)->spec.ends_with_stream);
  EXPECT_EQ(runner_.WaitForRun(1).name, running.name);
}

}  // namespace
}  // namespace sparsefw::server
