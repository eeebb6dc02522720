// The end of a manager with a durable store: its drain, and a disk that is full.
#include <atomic>
#include <thread>

#include "tests/server/jobs/recovery_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using ::testing::SizeIs;
using testing::StatusIs;

TEST_F(RecoveryTest, QueuedJobsStayQueuedOverADrain) {
  const Job running = SubmitRunning();
  const Job first = Submit();
  const Job second = Submit();
  const auto watcher = Watch(first.name);
  auto drained = Drain(absl::Hours(1));
  watcher->WaitForSuspension();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kQueued));
  const auto late = Watch(first.name);
  late->WaitForSuspension();
  EXPECT_THAT(late->states(), ElementsAre(JobState::kQueued)) << "a snapshot, then nothing";
  const auto finished = Watch(running.name);
  runner_.Finish(running.name, ResultWith(StopCause::kIterations));
  drained.wait();
  EXPECT_EQ(finished->WaitForEnd().state, JobState::kSucceeded);
  EXPECT_EQ(store_.Get(first.name)->revision, first.revision);

  EXPECT_EQ(StartAgain().queued, 2);
  EXPECT_EQ(runner_.released_inputs(), 1) << "what a job brought along stays for it";
  EXPECT_EQ(runner_.WaitForRun(1).name, first.name);
  RunTo(first.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(runner_.WaitForRun(2).name, second.name);
}

TEST_F(RecoveryTest, ARunningJobGoesBackToTheQueueAfterTheGrace) {
  runner_.obey_stop = true;
  const Job job = SubmitRunning();
  Report(job.name, 100);
  const auto watcher = Watch(job.name);
  auto drained = Drain(absl::Seconds(10));
  clock_.AwaitWaiter(clock_.Now() + absl::Seconds(10));
  EXPECT_EQ(Get(job.name).state, JobState::kRunning) << "for the grace";
  clock_.Advance(absl::Seconds(10));
  drained.wait();
  watcher->WaitForSuspension();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kRunning, JobState::kQueued));
  const Job queued = *store_.Get(job.name);
  EXPECT_EQ(queued.state, JobState::kQueued);
  EXPECT_EQ(queued.attempts, 0) << "an orderly end is none";
  EXPECT_FALSE(queued.progress);
  EXPECT_EQ(queued.start_time, absl::InfinitePast());

  manager_.reset();  // joins the workers
  EXPECT_THAT(runner_.discarded(), ElementsAre(job.name)) << "the mask of the run that was stopped";
  EXPECT_EQ(runner_.released_inputs(), 0);
  runner_.obey_stop = false;
  Restart({});
  EXPECT_EQ(Recover().queued, 1);
  EXPECT_EQ(runner_.WaitForRun(1).attempts, 1);
  EXPECT_THAT(Watch(job.name, watcher->seen()[0].job.revision)->states(),
              ElementsAre(JobState::kRunning, JobState::kQueued, JobState::kRunning));
  EXPECT_THAT(listener_.calls(),
              ElementsAre("accepted " + job.name, "started " + job.name, "interrupted " + job.name,
                          "recovered " + job.name, "started " + job.name));
}

// Every watcher learns of the states in their order.
TEST_F(RecoveryTest, ACancelRightAfterTheReturnToTheQueueIsToldAfterIt) {
  runner_.obey_stop = true;
  listener_.on_interrupted = [this](const Job& job) {
    EXPECT_EQ(manager_->Cancel(job.name)->state, JobState::kCancelled);
  };
  const Job job = SubmitRunning();
  const auto watcher = Watch(job.name);
  Drain(absl::ZeroDuration()).wait();
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->states(),
              ElementsAre(JobState::kRunning, JobState::kQueued, JobState::kCancelled));
}

// A start would end the job of a stream for want of the stream.
TEST_F(RecoveryTest, ADrainThatMeetsAJobBeforeItIsStoredLeavesItToTheNextProcess) {
  std::future<void> drained;
  store_.insert_fault = [&](const Job&) -> absl::Status {
    drained = Drain(absl::Hours(1));
    // Time for a drain that does not wait for the store.
    for (int i = 0; i < 100 && listener_.errors().empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::OkStatus();
  };
  JobSpec spec;
  spec.ends_with_stream = true;
  const Job job = Submit(spec);
  drained.wait();
  EXPECT_THAT(listener_.errors(), SizeIs(0));
  EXPECT_FALSE(store_.Get(job.name)->spec.ends_with_stream);
  EXPECT_EQ(StartAgain().queued, 1);
  runner_.obey_stop = true;
}

// A process that ends meanwhile would leave the job to the next one without them.
TEST_F(RecoveryTest, WhatAJobBroughtAlongStaysUntilItsEndIsStored) {
  const Job job = SubmitRunning();
  std::atomic<bool> full = true;
  store_.update_fault = [&full](const Job& updated) -> absl::Status {
    if (full && updated.state == JobState::kSucceeded) return absl::DataLossError("full");
    return absl::OkStatus();
  };
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  Await([&] { return !listener_.errors().empty(); });
  EXPECT_EQ(runner_.released_inputs(), 0);
  full = false;
  manager_->CollectGarbage();
  EXPECT_EQ(Get(job.name).state, JobState::kSucceeded);
  EXPECT_EQ(runner_.released_inputs(), 1);
}

TEST_F(RecoveryTest, ResultsOfARunThatADrainPutBackAreDiscarded) {
  Job requeued = Left("jobs/1");
  requeued.revision = requeued.state_revision = 3;
  Store(requeued);
  Store(Left("jobs/2"));
  EXPECT_EQ(Recover().queued, 2);
  EXPECT_THAT(runner_.discarded(), ElementsAre("jobs/1"));
  runner_.obey_stop = true;
}

TEST_F(RecoveryTest, ADeviceThatIsLostMeanwhileEndsJobsButNotTheStart) {
  runner_.device_need_of = [](const JobSpec&) {
    DeviceNeed need;
    need.devices = {"cuda:0"};
    need.bytes = 1;
    return need;
  };
  JobManagerOptions options;
  options.devices = {{"cuda:0", 10, 1}};
  Restart(options);
  Store(Left("jobs/1"));
  clock_.Advance(absl::Seconds(1));
  Store(Left("jobs/2", JobState::kRunning));
  store_.update_fault = [this](const Job& updated) -> absl::Status {
    if (updated.name != "jobs/2" || updated.state != JobState::kQueued) return absl::OkStatus();
    EXPECT_EQ(runner_.WaitForRun(0).name, "jobs/1");
    runner_.Finish("jobs/1", WithReason(absl::InternalError("an illegal address"), "DEVICE_LOST"));
    Await([this] { return manager_->devices()[0].lost; });
    return absl::OkStatus();
  };
  Recover();
  const Job ended = Get("jobs/2");
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ReasonOf(ended.error), "DEVICE_UNAVAILABLE");
}

TEST_F(RecoveryTest, ARunThatEndsInTheGraceHasEnded) {
  const Job job = SubmitRunning();
  const auto watcher = Watch(job.name);
  auto drained = Drain(absl::ZeroDuration());
  // Its stop comes too late.
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  drained.wait();
  EXPECT_EQ(watcher->WaitForEnd().state, JobState::kSucceeded);
  EXPECT_EQ(StartAgain().queued, 0);
}

TEST_F(RecoveryTest, ACallersCancelWinsOverTheDrain) {
  const Job job = SubmitRunning();
  const Job queued = Submit();
  const auto watcher = Watch(job.name);
  auto drained = Drain(absl::Hours(1));
  Watch(queued.name)->WaitForSuspension();
  EXPECT_EQ(manager_->Cancel(queued.name)->state, JobState::kCancelled);
  runner_.obey_stop = true;
  EXPECT_THAT(manager_->Cancel(job.name), IsOk());
  drained.wait();
  EXPECT_EQ(watcher->WaitForEnd().state, JobState::kCancelled);
  EXPECT_EQ(store_.Get(queued.name)->state, JobState::kCancelled);
  EXPECT_EQ(StartAgain().queued, 0);
}

TEST_F(RecoveryTest, AnInterruptionThatCannotBeStoredCountsAsACrash) {
  runner_.obey_stop = true;
  const Job job = SubmitRunning();
  store_.update_fault = [](const Job&) { return absl::ResourceExhaustedError("full"); };
  manager_->Drain(absl::ZeroDuration());
  EXPECT_THAT(listener_.errors(), SizeIs(1));
  store_.update_fault = [](const Job&) { return absl::OkStatus(); };
  manager_.reset();
  Restart({});
  EXPECT_EQ(Recover().interrupted, 1);
  EXPECT_EQ(runner_.WaitForRun(1).attempts, 2);
}

// Or it would end twice, if the process ended before the store has it.
TEST_F(RecoveryTest, NobodyIsToldOfAnEndThatIsNotStored) {
  const Job job = SubmitRunning();
  const Job queued = Submit();
  const auto watcher = Watch(job.name);
  const auto other = Watch(queued.name);
  store_.update_fault = [](const Job&) { return absl::ResourceExhaustedError("full"); };
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(manager_->Cancel(queued.name),
                StatusIs(absl::StatusCode::kResourceExhausted, "", "full"));
  }
  EXPECT_EQ(Get(queued.name).state, JobState::kQueued);
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  while (manager_->running() > 0) std::this_thread::yield();
  EXPECT_EQ(Get(job.name).state, JobState::kRunning);
  manager_->CollectGarbage();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kRunning));
  store_.update_fault = [](const Job&) { return absl::OkStatus(); };
  manager_->CollectGarbage();
  EXPECT_EQ(watcher->WaitForEnd().state, JobState::kSucceeded);
  EXPECT_EQ(other->WaitForEnd().state, JobState::kCancelled);
  EXPECT_EQ(store_.Get(job.name)->state, JobState::kSucceeded);
  manager_->CollectGarbage();
  EXPECT_THAT(watcher->states(), SizeIs(2)) << "once";
}

// It was accepted: a full disk delays it.
TEST_F(RecoveryTest, AStartThatCannotBeStoredIsTriedAgain) {
  std::atomic<bool> full = true;
  store_.update_fault = [&full](const Job&) {
    return full ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  };
  const Job job = Submit();
  while (listener_.errors().empty()) std::this_thread::yield();
  EXPECT_EQ(Get(job.name).state, JobState::kQueued);
  EXPECT_EQ(runner_.runs(), 0U);
  full = false;
  EXPECT_EQ(runner_.WaitForRun(0).attempts, 1);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(store_.Get(job.name)->state, JobState::kSucceeded);
}

TEST_F(RecoveryTest, ADrainDoesNotWaitForAStoreThatIsFull) {
  const Job job = SubmitRunning();
  store_.update_fault = [](const Job&) { return absl::ResourceExhaustedError("full"); };
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  manager_->Drain(absl::Hours(1));
  EXPECT_EQ(store_.Get(job.name)->state, JobState::kRunning);
  store_.update_fault = [](const Job&) { return absl::OkStatus(); };
}

}  // namespace
}  // namespace sparsefw::server
