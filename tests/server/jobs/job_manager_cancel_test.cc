// Cancelling in every state, deadlines, draining, and the end of the manager.
#include <atomic>
#include <thread>

#include "server/jobs/scheduling/scheduler.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

using CancelTest = JobManagerTest;

TEST_F(CancelTest, AQueuedJobIsCancelledAtOnce) {
  const Job blocker = SubmitRunning();
  const Job job = Submit();
  const auto watcher = Watch(job.name);
  clock_.Advance(absl::Seconds(3));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job cancelled, manager_->Cancel(job.name));
  EXPECT_EQ(cancelled.state, JobState::kCancelled);
  EXPECT_EQ(cancelled.end_time, clock_.Now());
  EXPECT_EQ(cancelled.expire_time, clock_.Now() + absl::Hours(24));
  EXPECT_FALSE(cancelled.result);
  EXPECT_THAT(cancelled.error, IsOk());
  EXPECT_EQ(manager_->queued(), 0);
  EXPECT_EQ(runner_.live_inputs(), 1) << "the blocker's alone";
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kQueued, JobState::kCancelled));

  // It does not run when the worker is free.
  const Job next = Submit();
  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(runner_.WaitForRun(1).name, next.name);
}

TEST_F(CancelTest, ARunningJobIsToldToStopAndKeepsItsMask) {
  const Job job = SubmitRunning();
  EXPECT_FALSE(runner_.stop_requested(job.name));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job stopping, manager_->Cancel(job.name));
  EXPECT_EQ(stopping.state, JobState::kRunning);
  EXPECT_EQ(stopping.revision, 2);
  EXPECT_TRUE(runner_.stop_requested(job.name));
  ASSERT_THAT(manager_->Cancel(job.name), IsOk());
  const Job ended = RunTo(job.name, ResultWith(StopCause::kCancelled));
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_TRUE(ended.result);
}

TEST_F(CancelTest, ARunThatWasDoneBeforeItSawTheSignalHasSucceeded) {
  const Job job = SubmitRunning();
  ASSERT_THAT(manager_->Cancel(job.name), IsOk());
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kIterations)).state, JobState::kSucceeded);
}

TEST_F(CancelTest, WhatHasEndedStaysAsItIs) {
  const Job succeeded = SubmitRunning();
  RunTo(succeeded.name, ResultWith(StopCause::kIterations));
  const Job failed = SubmitRunning();
  RunTo(failed.name, absl::InternalError("bad luck"));
  const Job cancelled = SubmitRunning();
  RunTo(cancelled.name, absl::CancelledError("stopped"));
  for (const auto& [name, state] :
       {std::pair(succeeded.name, JobState::kSucceeded), std::pair(failed.name, JobState::kFailed),
        std::pair(cancelled.name, JobState::kCancelled)}) {
    const Job before = Get(name);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job after, manager_->Cancel(name));
    EXPECT_EQ(after.state, state);
    EXPECT_EQ(after.revision, before.revision);
    EXPECT_EQ(after.end_time, before.end_time);
  }
}

TEST_F(CancelTest, UnknownJobsAreNotFound) {
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none");
  EXPECT_THAT(manager_->Cancel("jobs/none"), not_found);
  EXPECT_THAT(manager_->Get("jobs/none"), not_found);
  EXPECT_THAT(manager_->Delete("jobs/none"), not_found);
}

// ---- Deadlines.

JobSpec WithDeadline(absl::Duration deadline) {
  JobSpec spec;
  spec.deadline = deadline;
  return spec;
}

using DeadlineTest = JobManagerTest;

TEST_F(DeadlineTest, EndsAQueuedJobOnTimeWhileEveryWorkerIsBusy) {
  const Job blocker = SubmitRunning();
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  const auto watcher = Watch(job.name);
  clock_.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(Get(job.name).state, JobState::kQueued);
  clock_.Advance(absl::Nanoseconds(1));
  const Job ended = watcher->WaitForEnd();
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_THAT(ended.error, StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                                    "deadline of 5s", "before the job started"));
  EXPECT_EQ(ended.end_time, clock_.Now());
  EXPECT_EQ(manager_->queued(), 0);
  EXPECT_EQ(runner_.live_inputs(), 1);
  EXPECT_EQ(Get(blocker.name).state, JobState::kRunning);
}

TEST_F(DeadlineTest, AnEarlierDeadlineThatComesLaterIsKept) {
  SubmitRunning();
  const Job late = Submit(WithDeadline(absl::Seconds(50)));
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(50));
  const Job never = Submit();
  const Job early = Submit(WithDeadline(absl::Seconds(5)));
  const auto early_watcher = Watch(early.name);
  const auto late_watcher = Watch(late.name);
  clock_.Advance(absl::Seconds(5));
  early_watcher->WaitForEnd();
  EXPECT_EQ(Get(late.name).state, JobState::kQueued);
  clock_.Advance(absl::Seconds(45));
  late_watcher->WaitForEnd();
  EXPECT_EQ(Get(never.name).state, JobState::kQueued);
}

TEST_F(DeadlineTest, OfARunningJobIsFirstTheRunnersAffair) {
  const absl::Time accepted = clock_.Now();
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  EXPECT_EQ(runner_.WaitForRun(0).deadline, accepted + absl::Seconds(5));
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(Get(job.name).state, JobState::kRunning);
  EXPECT_FALSE(runner_.stop_requested(job.name)) << "it is about to see it itself";
  const Job ended = RunTo(job.name, ResultWith(StopCause::kDeadline));
  EXPECT_EQ(ended.state, JobState::kSucceeded);
  EXPECT_EQ(ended.result->solve.stop_cause, StopCause::kDeadline);
  EXPECT_EQ(SubmitRunning().deadline, absl::InfiniteFuture());
}

TEST_F(DeadlineTest, StopsARunThatDoesNotStopByItself) {
  runner_.obey_stop = true;
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  runner_.WaitForRun(0);
  const auto watcher = Watch(job.name);
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(5) + Scheduler::kDeadlineSlack);
  clock_.Advance(absl::Seconds(5) + Scheduler::kDeadlineSlack);
  const Job ended = watcher->WaitForEnd();
  EXPECT_EQ(ended.state, JobState::kSucceeded) << "as one that has seen its deadline";
  ASSERT_TRUE(ended.result);
  EXPECT_EQ(ended.result->solve.stop_cause, StopCause::kDeadline);
}

TEST_F(DeadlineTest, WithoutAMaskItFails) {
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  runner_.WaitForRun(0);
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(5) + Scheduler::kDeadlineSlack);
  clock_.Advance(absl::Seconds(6));
  while (!runner_.stop_requested(job.name)) std::this_thread::yield();
  const Job ended = RunTo(job.name, absl::CancelledError("stopped before there was a mask"));
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_THAT(ended.error, StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                                    "before there was a mask"));
}

TEST_F(DeadlineTest, OfACancelledJobChangesNothing) {
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  runner_.WaitForRun(0);
  ASSERT_THAT(manager_->Cancel(job.name), IsOk());
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(5) + Scheduler::kDeadlineSlack);
  clock_.Advance(absl::Seconds(6));
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kCancelled)).state, JobState::kCancelled);
}

// The worker may come before the thread that looks after deadlines.
TEST_F(DeadlineTest, AnOverdueJobIsNotStarted) {
  const Job blocker = SubmitRunning();
  const Job overdue = Submit(WithDeadline(absl::Seconds(5)));
  const Job next = Submit();
  const auto watcher = Watch(overdue.name);
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(5));
  clock_.AdvanceUnnoticed(absl::Seconds(6));
  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  EXPECT_THAT(watcher->WaitForEnd().error,
              StatusIs(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_EQ(runner_.WaitForRun(1).name, next.name);
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kQueued, JobState::kFailed));
}

// Back by a day, and then ahead by two hours.
TEST_F(DeadlineTest, IsNotMovedWhenTheClockIsSet) {
  const Job job = Submit(WithDeadline(absl::Seconds(5)));
  runner_.WaitForRun(0);
  const Job next = Submit(WithDeadline(absl::Hours(1)));
  clock_.AwaitWaiter(clock_.SteadyNow() + absl::Seconds(5) + Scheduler::kDeadlineSlack);
  clock_.Step(-absl::Hours(24));
  clock_.Advance(absl::Seconds(5) + Scheduler::kDeadlineSlack);
  Await([&] { return runner_.stop_requested(job.name); });
  clock_.Step(absl::Hours(26));
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kCancelled)).result->solve.stop_cause,
            StopCause::kDeadline);
  EXPECT_EQ(runner_.WaitForRun(1).name, next.name) << "it has most of its hour left";
  RunTo(next.name, ResultWith(StopCause::kIterations));
}

TEST_F(DeadlineTest, EndedJobsDoNotExpireEarlyWhenTheClockIsSetAhead) {
  const Job job = SubmitRunning();
  RunTo(job.name, ResultWith(StopCause::kIterations));
  clock_.Step(absl::Hours(25));
  manager_->CollectGarbage();
  EXPECT_THAT(manager_->Get(job.name), IsOk());
  clock_.Advance(absl::Hours(24));
  manager_->CollectGarbage();
  EXPECT_TRUE(absl::IsNotFound(manager_->Get(job.name).status()));
}

// ---- Draining.

using DrainTest = JobManagerTest;

TEST_F(DrainTest, CancelsTheQueueAndWaitsForTheRunning) {
  const Job running = SubmitRunning();
  const Job queued = Submit();
  const auto queued_watcher = Watch(queued.name);
  std::atomic<bool> drained = false;
  std::thread drain([&] {
    manager_->Drain(absl::Seconds(30));
    drained = true;
  });
  EXPECT_EQ(queued_watcher->WaitForEnd().state, JobState::kCancelled);
  EXPECT_THAT(manager_->Submit({}, "", {""}, {}, false),
              StatusIs(absl::StatusCode::kUnavailable, "DRAINING"));
  clock_.Advance(absl::Seconds(29));
  EXPECT_FALSE(runner_.stop_requested(running.name));
  EXPECT_FALSE(drained);
  runner_.Finish(running.name, ResultWith(StopCause::kIterations));
  drain.join();
  EXPECT_EQ(Get(running.name).state, JobState::kSucceeded);
  EXPECT_EQ(runner_.runs(), 1u);
  EXPECT_EQ(listener_.calls().back(), "ended " + running.name);
}

TEST_F(DrainTest, CancelsTheRunningWhenTheGraceIsOver) {
  const Job running = SubmitRunning();
  runner_.obey_stop = true;
  const auto watcher = Watch(running.name);
  const absl::Time end_of_grace = clock_.Now() + absl::Seconds(30);
  std::thread drain([&] { manager_->Drain(absl::Seconds(30)); });
  clock_.AwaitWaiter(end_of_grace);
  clock_.Advance(absl::Seconds(29));
  EXPECT_FALSE(runner_.stop_requested(running.name));
  clock_.Advance(absl::Seconds(1));
  drain.join();
  const Job ended = watcher->WaitForEnd();
  EXPECT_EQ(ended.state, JobState::kCancelled);
  EXPECT_TRUE(ended.result) << "the best mask so far";
  EXPECT_EQ(ended.end_time, end_of_grace);
}

TEST_F(DrainTest, TwiceIsOnce) {
  runner_.obey_stop = true;
  const Job running = SubmitRunning();
  manager_->Drain(absl::ZeroDuration());
  manager_->Drain(absl::Hours(1));
  EXPECT_EQ(Get(running.name).state, JobState::kCancelled);
}

TEST_F(DrainTest, ASubmissionThatIsBeingValidatedIsRefused) {
  std::atomic<bool> inside = false;
  std::atomic<bool> go_on = false;
  runner_.on_prepare = [&](const JobSpec&) {
    inside = true;
    while (!go_on) std::this_thread::yield();
    return absl::OkStatus();
  };
  absl::Status submitted;
  std::thread submit(
      [&] { submitted = manager_->Submit({}, "request", {""}, {}, false).status(); });
  while (!inside) std::this_thread::yield();
  manager_->StopAccepting();
  std::thread drain([&] { manager_->Drain(absl::ZeroDuration()); });
  go_on = true;
  submit.join();
  drain.join();
  EXPECT_THAT(submitted, StatusIs(absl::StatusCode::kUnavailable, "DRAINING"));
  EXPECT_THAT(*store_.CountByState(), IsEmpty());
}

// The worker is free, and still it must not start.
TEST_F(DrainTest, AJobThatIsBeingStoredIsCancelled) {
  std::thread drain;
  store_.insert_fault = [&](const Job&) {
    drain = std::thread([&] { manager_->Drain(absl::Hours(1)); });
    clock_.AwaitWaiter(clock_.Now() + absl::Hours(1));
    return absl::OkStatus();
  };
  const Job job = Submit();
  drain.join();
  EXPECT_EQ(Get(job.name).state, JobState::kCancelled);
  EXPECT_EQ(runner_.runs(), 0u);
}

TEST_F(DrainTest, TheDestructorEndsEveryJob) {
  runner_.obey_stop = true;
  const Job running = SubmitRunning();
  const Job queued = Submit();
  const auto running_watcher = Watch(running.name);
  const auto queued_watcher = Watch(queued.name);
  manager_.reset();
  EXPECT_EQ(running_watcher->WaitForEnd().state, JobState::kCancelled);
  EXPECT_EQ(queued_watcher->WaitForEnd().state, JobState::kCancelled);
  EXPECT_EQ(store_.Get(running.name)->state, JobState::kCancelled);
}

// ---- Deletion and expiry.

using DeleteTest = JobManagerTest;

TEST_F(DeleteTest, OnlyEndedJobsAreDeletedWithTheirResults) {
  const Job job = SubmitRunning();
  const Job queued = Submit();
  for (const Job& one : {job, queued}) {
    EXPECT_THAT(manager_->Delete(one.name),
                StatusIs(absl::StatusCode::kFailedPrecondition, "JOB_NOT_FINISHED", one.name));
  }
  RunTo(job.name, ResultWith(StopCause::kIterations));
  ASSERT_THAT(manager_->Delete(job.name), IsOk());
  EXPECT_THAT(runner_.discarded(), ElementsAre(job.name));
  EXPECT_THAT(manager_->Get(job.name), StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND"));
  EXPECT_THAT(manager_->Delete(job.name), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(runner_.discarded(), ElementsAre(job.name)) << "once";
}

TEST_F(DeleteTest, AJobWhoseRecordIsDamagedCanBeDeleted) {
  const Job job = SubmitRunning();
  RunTo(job.name, ResultWith(StopCause::kIterations));
  store_.get_fault = [](std::string_view /*name*/) {
    return WithReason(absl::DataLossError("damaged"), kJobDamaged);
  };
  EXPECT_THAT(manager_->Get(job.name), StatusIs(absl::StatusCode::kDataLoss, "JOB_DAMAGED"));
  ASSERT_THAT(manager_->Delete(job.name), IsOk());
  EXPECT_THAT(runner_.discarded(), ElementsAre(job.name)) << "with its results";
  store_.get_fault = [](std::string_view /*name*/) { return absl::OkStatus(); };
  EXPECT_THAT(manager_->Get(job.name), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DeleteTest, GarbageIsWhatHasOutlivedItsTime) {
  JobSpec short_lived;
  short_lived.result_ttl = absl::Minutes(1);
  const Job first = Submit(short_lived);
  RunTo(runner_.WaitForRun(0).name, ResultWith(StopCause::kIterations));
  const Job second = SubmitRunning();
  RunTo(second.name, ResultWith(StopCause::kIterations));
  JobSpec endless;
  endless.result_ttl = absl::InfiniteDuration();
  const Job third = Submit(endless);
  RunTo(runner_.WaitForRun(2).name, ResultWith(StopCause::kIterations));
  const Job running = Submit(short_lived);
  runner_.WaitForRun(3);

  clock_.Advance(absl::Minutes(1) - absl::Nanoseconds(1));
  manager_->CollectGarbage();
  EXPECT_THAT(runner_.discarded(), IsEmpty());
  clock_.Advance(absl::Nanoseconds(1));
  manager_->CollectGarbage();
  EXPECT_THAT(runner_.discarded(), ElementsAre(first.name));
  EXPECT_THAT(manager_->Get(first.name), StatusIs(absl::StatusCode::kNotFound));
  clock_.Advance(absl::Hours(24));
  manager_->CollectGarbage();
  EXPECT_THAT(runner_.discarded(), ElementsAre(first.name, second.name));
  EXPECT_EQ(Get(third.name).state, JobState::kSucceeded);
  EXPECT_EQ(Get(running.name).state, JobState::kRunning);
}

TEST_F(DeleteTest, GarbageIsCollectedOverManyPages) {
  JobManagerOptions options;
  options.workers = 1;
  Restart(options);
  SubmitRunning();
  constexpr int kJobs = 2500;
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_THAT(manager_->Cancel(Submit().name), IsOk());
  }
  clock_.Advance(absl::Hours(24));
  manager_->CollectGarbage();
  EXPECT_EQ(runner_.discarded().size(), static_cast<size_t>(kJobs));
  EXPECT_THAT(*store_.CountByState(), ElementsAre(::testing::Pair(JobState::kRunning, 1)));
}

}  // namespace
}  // namespace sparsefw::server
