// Jobs that outlive the process: the start of the next one.
#include <atomic>
#include <string>
#include <vector>

#include "server/jobs/lifecycle/active_job.h"
#include "server/jobs/lifecycle/job_history.h"
#include "server/jobs/scheduling/scheduler.h"
#include "sparsefw/reason.h"
#include "tests/server/jobs/recovery_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

TEST_F(RecoveryTest, QueuedJobsGoOnInTheirOldOrder) {
  Job urgent = Left("jobs/urgent");
  urgent.spec.priority = 10;
  Store(Left("jobs/z"));
  Store(Left("jobs/a"));
  Store(urgent);
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.queued, 3);
  EXPECT_EQ(recovered.interrupted, 0);
  std::vector<std::string> order;
  for (size_t i = 0; i < 3; ++i) {
    order.push_back(runner_.WaitForRun(i).name);
    RunTo(order.back(), ResultWith(StopCause::kIterations));
  }
  // The worker may have taken the first before the urgent one was there.
  EXPECT_THAT(order, ::testing::AnyOf(ElementsAre("jobs/z", "jobs/urgent", "jobs/a"),
                                      ElementsAre("jobs/urgent", "jobs/z", "jobs/a")));
  EXPECT_EQ(runner_.prepared(), 3);
  EXPECT_EQ(runner_.prepared_unchecked(), 3) << "their values were checked at acceptance";
}

TEST_F(RecoveryTest, EndedJobsStayAsTheyAre) {
  Job ended = Left("jobs/ended", JobState::kRunning, 1);
  ended.state = JobState::kSucceeded;
  Store(ended);
  EXPECT_EQ(Recover().queued, 0);
  EXPECT_EQ(Get("jobs/ended").state, JobState::kSucceeded);
  EXPECT_EQ(runner_.prepared(), 0);
  EXPECT_THAT(listener_.calls(), IsEmpty());
}

TEST_F(RecoveryTest, ARunningJobRunsAgainFromItsStart) {
  Store(Left("jobs/a", JobState::kRunning, 1));
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.queued, 1);
  EXPECT_EQ(recovered.interrupted, 1);
  const Job again = runner_.WaitForRun(0);
  EXPECT_EQ(again.attempts, 2);
  EXPECT_FALSE(again.progress);
  // Who has seen it run comes back and misses nothing.
  const auto watcher = Watch("jobs/a", 5);
  EXPECT_THAT(watcher->states(),
              ElementsAre(JobState::kRunning, JobState::kQueued, JobState::kRunning));
  RunTo("jobs/a", ResultWith(StopCause::kIterations));
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kRunning, JobState::kQueued,
                                             JobState::kRunning, JobState::kSucceeded));
  EXPECT_EQ(store_.Get("jobs/a")->attempts, 2);
  EXPECT_THAT(runner_.discarded(), ElementsAre("jobs/a")) << "what its first run has left";
  EXPECT_THAT(listener_.calls(), ElementsAre("recovered jobs/a", "started jobs/a", "ended jobs/a"));
}

// A power failure may have taken back progress that a watcher has seen.
TEST_F(RecoveryTest, AWatcherThatSawLostProgressMissesNoState) {
  Store(Left("jobs/a", JobState::kRunning, 1));
  Recover();
  runner_.WaitForRun(0);
  EXPECT_THAT(Watch("jobs/a", 700)->states(),
              ElementsAre(JobState::kRunning, JobState::kQueued, JobState::kRunning));
}

// Who may delete something again, once the server runs.
TEST_F(RecoveryTest, AFullDiskDoesNotStopAStart) {
  Job cancelled = Left("jobs/cancelled", JobState::kRunning, 1);
  cancelled.cancel_requested = true;
  Store(cancelled);
  Store(Left("jobs/a", JobState::kRunning, 1));
  std::atomic<bool> full = true;
  store_.update_fault = [&full](const Job&) {
    return full ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.queued, 1);
  EXPECT_EQ(recovered.cancelled, 1);
  EXPECT_EQ(Get("jobs/a").state, JobState::kQueued);
  EXPECT_EQ(store_.Get("jobs/cancelled")->state, JobState::kRunning);
  full = false;
  EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/a");
  RunTo("jobs/a", ResultWith(StopCause::kIterations));
  manager_->CollectGarbage();
  EXPECT_EQ(store_.Get("jobs/cancelled")->state, JobState::kCancelled);
  EXPECT_EQ(store_.Get("jobs/a")->attempts, 2);
}

TEST_F(RecoveryTest, OnAFullDiskResultsGoBeforeTheirJob) {
  const Job job = SubmitRunning();
  RunTo(job.name, ResultWith(StopCause::kIterations));
  store_.delete_fault = [this](std::string_view) {
    return runner_.discarded().empty() ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
  EXPECT_THAT(manager_->Delete(job.name), testing::IsOk());
  EXPECT_THAT(manager_->Get(job.name), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RecoveryTest, AttemptsAreLimited) {
  Store(Left("jobs/a", JobState::kRunning, 3));
  Store(Left("jobs/b", JobState::kRunning, 2));
  Store(Left("jobs/c", JobState::kQueued, 3));  // interrupted by drains since
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.failed, 1);
  EXPECT_EQ(recovered.queued, 2);
  const Job failed = Get("jobs/a");
  EXPECT_EQ(failed.state, JobState::kFailed);
  EXPECT_THAT(failed.error,
              StatusIs(absl::StatusCode::kAborted, "ATTEMPTS_EXHAUSTED", "jobs/a", "3 times"));
  EXPECT_EQ(failed.end_time, clock_.Now());
  EXPECT_EQ(failed.expire_time, clock_.Now() + failed.spec.result_ttl);
  EXPECT_THAT(Watch("jobs/a", 5)->states(), ElementsAre(JobState::kRunning, JobState::kFailed));
  EXPECT_EQ(runner_.WaitForRun(0).attempts, 3);
}

TEST_F(RecoveryTest, AnAttemptThatGotFurtherIsNoneThatFailed) {
  const Job job = SubmitRunning();
  size_t run = 0;
  for (int64_t i = 1; i <= 10; ++i) {
    if (i % 2 == 0) {
      runner_.Save(job.name, 100 * i);  // and no report
    } else {
      Report(job.name, 100 * i);
    }
    EXPECT_EQ(KillDuringRun(job.name).queued, 1) << i;
    EXPECT_EQ(runner_.WaitForRun(++run).attempts, i + 1);
  }
  // To where it was before is no further.
  for (int i = 1; i <= 2; ++i) {
    Report(job.name, 900);
    EXPECT_EQ(KillDuringRun(job.name).queued, 1) << i;
    EXPECT_EQ(runner_.WaitForRun(++run).alone, i == 2);
  }
  EXPECT_EQ(KillDuringRun(job.name).failed, 1);
  EXPECT_THAT(Get(job.name).error,
              StatusIs(absl::StatusCode::kAborted, "ATTEMPTS_EXHAUSTED",
                       "the server ended 3 times in a row while " + job.name,
                       "the last time with no other job running", "fails after 3 such runs ("));
}

TEST_F(RecoveryTest, ASuspectedJobRunsAlone) {
  JobManagerOptions two_workers;
  two_workers.workers = 2;
  Restart(two_workers);
  Store(Left("jobs/first"));
  Store(Left("jobs/suspect", JobState::kRunning, 2));
  Store(Left("jobs/later"));
  EXPECT_EQ(Recover().queued, 3);
  EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/first");
  RunTo("jobs/first", ResultWith(StopCause::kIterations));
  const Job alone = runner_.WaitForRun(1);
  EXPECT_EQ(alone.name, "jobs/suspect") << "nobody has passed it";
  EXPECT_TRUE(alone.alone);
  const Job last = Submit();
  EXPECT_EQ(Get("jobs/later").state, JobState::kQueued);
  RunTo("jobs/suspect", ResultWith(StopCause::kIterations));
  // Two workers take them at the same time, so either may be seen first.
  const std::vector<std::string> beside{runner_.WaitForRun(2).name, runner_.WaitForRun(3).name};
  EXPECT_THAT(beside, UnorderedElementsAre("jobs/later", last.name));
  RunTo("jobs/later", ResultWith(StopCause::kIterations));
  RunTo(last.name, ResultWith(StopCause::kIterations));
}

TEST_F(RecoveryTest, TheLimitOfAttemptsIsAnOption) {
  JobManagerOptions options;
  options.max_attempts = 1;
  Restart(options);
  Store(Left("jobs/a", JobState::kRunning, 1));
  EXPECT_EQ(Recover().failed, 1);
  EXPECT_THAT(Get("jobs/a").error,
              StatusIs(absl::StatusCode::kAborted, "ATTEMPTS_EXHAUSTED",
                       "the server ended once while jobs/a ran and came no further; a job fails "
                       "after 1 such run ("));
}

TEST_F(RecoveryTest, AJobThatCannotGoOnFailsWithTheReason) {
  Job gone = Left("jobs/gone");
  gone.spec.weight = "tensors/gone";
  Store(gone);
  Store(Left("jobs/good"));
  runner_.on_prepare = [](const JobSpec& spec) {
    return spec.weight.empty()
               ? absl::OkStatus()
               : WithReason(absl::FailedPreconditionError("no " + spec.weight), "TENSOR_NOT_FOUND");
  };
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.failed, 1);
  EXPECT_EQ(recovered.queued, 1);
  EXPECT_THAT(Get("jobs/gone").error,
              StatusIs(absl::StatusCode::kFailedPrecondition, "TENSOR_NOT_FOUND", "tensors/gone"));
  EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/good");
  EXPECT_THAT(listener_.calls(), ElementsAre("recovered jobs/gone", "ended jobs/gone",
                                             "recovered jobs/good", "started jobs/good"));
}

TEST_F(RecoveryTest, ADeadlineGoesOnMeanwhile) {
  Job late = Left("jobs/late", JobState::kRunning, 1);
  late.deadline = clock_.Now();
  Store(late);
  Store(Left("jobs/blocker"));
  Job soon = Left("jobs/soon");
  soon.deadline = clock_.Now() + absl::Seconds(1);
  Store(soon);
  const RecoveredJobs recovered = Recover();
  EXPECT_EQ(recovered.failed, 1);
  EXPECT_EQ(recovered.queued, 2);
  const auto exceeded = StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED");
  EXPECT_THAT(Get("jobs/late").error, exceeded);
  EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/blocker");
  const auto watcher = Watch("jobs/soon");
  clock_.AwaitWaiter(soon.deadline);
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(watcher->WaitForEnd().error, exceeded);
}

TEST_F(RecoveryTest, TheQueueLimitIsForNewJobs) {
  JobManagerOptions options;
  options.max_queued_jobs = 1;
  Restart(options);
  for (int i = 0; i < 4; ++i) Store(Left("jobs/" + std::to_string(i)));
  EXPECT_EQ(Recover().queued, 4);
  runner_.WaitForRun(0);
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, false),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUEUE_FULL"));
}

TEST_F(RecoveryTest, ARepeatedRequestFindsItsJobAfterTheRestart) {
  runner_.obey_stop = true;
  SubmitRunning();
  const Job job = Submit({}, "request");
  StartAgain();
  EXPECT_EQ(Submit({}, "request").name, job.name);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(
      const Job other,
      manager_->Submit({}, "request", {"body"}, Owner{"another tenant", "somebody"}, false));
  EXPECT_NE(other.name, job.name) << "request ids are a tenant's own";
}

TEST_F(RecoveryTest, AStoreThatFailsEndsTheRecovery) {
  Store(Left("jobs/a", JobState::kRunning, 1));
  store_.update_fault = [](const Job&) { return absl::InternalError("broken"); };
  EXPECT_THAT(manager_->Recover(), StatusIs(absl::StatusCode::kInternal, "", "broken"));
  EXPECT_EQ(store_.Get("jobs/a")->state, JobState::kRunning);
}

// The clock was set back by a day while no server ran.
TEST_F(RecoveryTest, NoDeadlineGetsLongerThanItWas) {
  Job left = Left("jobs/a");
  left.spec.deadline = absl::Seconds(5);
  left.deadline = clock_.Now() + absl::Hours(24) + absl::Seconds(3);
  Store(left);
  Recover();
  runner_.WaitForRun(0);
  clock_.AwaitWaiter(clock_.SteadyNow() + absl::Seconds(5) + Scheduler::kDeadlineSlack);
  RunTo("jobs/a", ResultWith(StopCause::kIterations));
}

// Progress is announced before it is stored: a killed process has given out revisions that its
// successor does not know of.
TEST_F(RecoveryTest, RevisionsThatWereNeverStoredAreNotGivenOutAgain) {
  const Job job = SubmitRunning();
  for (int64_t i = 1; i <= 20; ++i) Report(job.name, i);
  const Job seen = Get(job.name);
  Job left = *store_.Get(job.name);  // what a killed process would have left
  EXPECT_LT(left.revision, seen.revision);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  left.name = "jobs/left";
  Store(left);
  StartAgain();
  runner_.WaitForRun(1);
  const auto watcher = Watch("jobs/left", seen.revision);
  EXPECT_THAT(watcher->states(),
              ElementsAre(JobState::kRunning, JobState::kQueued, JobState::kRunning));
  EXPECT_EQ(watcher->seen()[0].job.revision, seen.revision);
  Report("jobs/left", 1);
  EXPECT_GT(Get("jobs/left").revision, seen.revision);
  RunTo("jobs/left", ResultWith(StopCause::kIterations));
}

// A store that takes no progress for long: watchers do not get ahead of what a restart skips.
TEST(ActiveJobTest, RevisionsStayWithinWhatARestartSkips) {
  auto first = std::make_shared<Job>();
  first->state = JobState::kRunning;
  first->revision = 7;
  ActiveJob job(first, std::make_shared<JobRunner::Inputs>(), absl::InfiniteFuture());
  MutexLock lock(job.mutex);
  job.progress = JobProgress{{}, 7 + kMostRevisionsLost - 2};
  const auto report = [&job]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex) {
    MutexLock report_lock(job.report_mutex);
    job.report = ProgressReport();
  };
  report();
  EXPECT_EQ(job.TakeReport()->revision(), 7 + kMostRevisionsLost - 1);
  report();
  EXPECT_FALSE(job.TakeReport().has_value());
  job.stored_revision = job.revision();
  report();
  EXPECT_EQ(job.TakeReport()->revision(), 7 + kMostRevisionsLost);
}

// Interruption after interruption: the history is bounded, and says so.
TEST_F(RecoveryTest, AVeryLongHistoryForgetsItsBeginning) {
  runner_.obey_stop = true;
  Job job = SubmitRunning();
  const int64_t first = Get(job.name).revision;
  constexpr size_t kRestarts = 40;
  for (size_t i = 1; i <= kRestarts; ++i) {
    StartAgain();
    job = runner_.WaitForRun(i);
  }
  EXPECT_THAT(job.states, SizeIs(64));
  EXPECT_THAT(manager_->Watch(job.name, first, [] {}),
              StatusIs(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN", job.name));
  EXPECT_THAT(Watch(job.name, job.states.front().revision)->states(), SizeIs(64));
  EXPECT_THAT(Watch(job.name)->states(), ElementsAre(JobState::kRunning));
}

}  // namespace
}  // namespace sparsefw::server
