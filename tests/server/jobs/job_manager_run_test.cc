#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "sparsefw/reason.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using testing::StatusIs;

using RunTest = JobManagerTest;

TEST_F(RunTest, ASuccessIsToldWithItsTimesAndRevisions) {
  const Job blocker = SubmitRunning();
  JobSpec spec;
  spec.result_ttl = absl::Minutes(90);
  const Job job = Submit(spec);
  const absl::Time created = clock_.Now();
  clock_.Advance(absl::Seconds(4));
  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  const Job started = runner_.WaitForRun(1);
  EXPECT_EQ(started.state, JobState::kRunning);
  EXPECT_EQ(started.start_time, created + absl::Seconds(4));
  EXPECT_EQ(started.revision, 2);
  EXPECT_EQ(started.state_revision, 2);
  EXPECT_EQ(started.queue_position, 0);
  clock_.Advance(absl::Seconds(6));
  Report(job.name, 100);
  const Job ended = RunTo(job.name, ResultWith(StopCause::kGap));
  EXPECT_EQ(ended.state, JobState::kSucceeded);
  EXPECT_EQ(ended.revision, 4);
  EXPECT_EQ(ended.state_revision, 4);
  EXPECT_EQ(ended.end_time, created + absl::Seconds(10));
  EXPECT_EQ(ended.expire_time, ended.end_time + absl::Minutes(90));
  EXPECT_EQ(ended.progress->iteration, 100);
  ASSERT_TRUE(ended.result);
  EXPECT_EQ(ended.result->mask, "tensors/mask");
  EXPECT_EQ(ended.result->queue_time, absl::Seconds(4));
  EXPECT_THAT(ended.error, IsOk());
  EXPECT_EQ(Get(job.name).revision, 4);
}

TEST_F(RunTest, ProgressMovesTheRevisionButNotTheStateRevision) {
  const Job job = SubmitRunning();
  Report(job.name, 100);
  Report(job.name, 200);
  const Job now = Get(job.name);
  EXPECT_EQ(now.progress->iteration, 200);
  EXPECT_EQ(now.revision, 4);
  EXPECT_EQ(now.state_revision, 2);
}

struct Outcome {
  const char* name;
  std::function<absl::StatusOr<JobResult>()> run;
  JobState state;
  bool has_result;
  absl::StatusCode error = absl::StatusCode::kOk;
  const char* message = "";
};

class OutcomeTest : public JobManagerTest, public ::testing::WithParamInterface<Outcome> {};

TEST_P(OutcomeTest, OfARunIsTheStateOfTheJob) {
  const Job job = SubmitRunning();
  const auto watcher = Watch(job.name);
  const auto run = GetParam().run;
  runner_.Do(job.name, [run](const PuppetRunner::Reporter&) { return run(); });
  const Job ended = watcher->WaitForEnd();
  EXPECT_EQ(ended.state, GetParam().state);
  EXPECT_EQ(ended.result.has_value(), GetParam().has_result);
  EXPECT_EQ(ended.error.code(), GetParam().error);
  if (!ended.error.ok()) {
    EXPECT_THAT(std::string(ended.error.message()), ::testing::HasSubstr(GetParam().message));
  }
  EXPECT_EQ(ReasonOf(ended.error),
            GetParam().error == absl::StatusCode::kInvalidArgument ? "NON_FINITE" : "");
  EXPECT_EQ(manager_->running(), 0);
  // The worker has survived.
  RunTo(Submit().name, ResultWith(StopCause::kIterations));
}

INSTANTIATE_TEST_SUITE_P(
    AllOutcomes, OutcomeTest,
    ::testing::Values(
        Outcome{"Iterations", [] { return ResultWith(StopCause::kIterations); },
                JobState::kSucceeded, true},
        Outcome{"DeadlineWithMask", [] { return ResultWith(StopCause::kDeadline); },
                JobState::kSucceeded, true},
        Outcome{"CancelledWithMask", [] { return ResultWith(StopCause::kCancelled); },
                JobState::kCancelled, true},
        Outcome{"MaskWithoutTheRest",
                [] {
                  JobResult result = ResultWith(StopCause::kIterations);
                  result.incomplete = absl::ResourceExhaustedError("no pruned weight");
                  return result;
                },
                JobState::kFailed, true, absl::StatusCode::kResourceExhausted, "no pruned weight"},
        Outcome{"CancelledWithoutMask", [] { return absl::CancelledError("stopped"); },
                JobState::kCancelled, false},
        Outcome{"DeadlineWithoutMask", [] { return absl::DeadlineExceededError("too late"); },
                JobState::kFailed, false, absl::StatusCode::kDeadlineExceeded, "too late"},
        Outcome{"Error",
                [] {
                  return WithReason(absl::InvalidArgumentError("weights[3, 17] is nan"),
                                    "NON_FINITE");
                },
                JobState::kFailed, false, absl::StatusCode::kInvalidArgument, "weights[3, 17]"},
        Outcome{"Exception",
                []() -> absl::StatusOr<JobResult> { throw std::runtime_error("kaboom"); },
                JobState::kFailed, false, absl::StatusCode::kInternal, "kaboom"},
        Outcome{"BadAlloc", []() -> absl::StatusOr<JobResult> { throw std::bad_alloc(); },
                JobState::kFailed, false, absl::StatusCode::kInternal, "bad_alloc"},
        Outcome{"NoException", []() -> absl::StatusOr<JobResult> { throw 42; }, JobState::kFailed,
                false, absl::StatusCode::kInternal, "unknown exception"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_F(RunTest, TheTensorsAreReleasedBeforeTheEndIsTold) {
  const Job job = SubmitRunning();
  auto watcher = std::make_shared<RecordingWatcher>();
  int live_at_end = -1;
  watcher->during_callback = [&](const JobEvent& event) {
    if (IsTerminal(event.job->state)) live_at_end = runner_.live_inputs();
  };
  ASSERT_THAT(watcher->Watch(*manager_, job.name), IsOk());
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  watcher->WaitForEnd();
  EXPECT_EQ(live_at_end, 0);
}

TEST_F(RunTest, TheListenerHearsEveryJobInOrder) {
  const Job first = SubmitRunning();
  const Job second = Submit();
  ASSERT_THAT(manager_->Cancel(second.name), IsOk());
  Report(first.name, 1);
  RunTo(first.name, absl::InternalError("bad luck"));
  manager_->Drain(absl::ZeroDuration());
  EXPECT_THAT(listener_.calls(), ElementsAre("accepted " + first.name, "started " + first.name,
                                             "accepted " + second.name, "ended " + second.name,
                                             "ended " + first.name));
  EXPECT_THAT(listener_.errors(), IsEmpty());
}

TEST_F(RunTest, WorksOnTheWallClock) {
  auto store = NewMemoryJobStore().value();
  auto manager =
      std::make_unique<JobManager>(JobManagerOptions(), store.get(), &runner_, &listener_);
  JobSpec spec;
  spec.deadline = absl::Hours(1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job job, manager->Submit(spec, "", {""}, {}, false));
  runner_.WaitForRun(0);
  auto watcher = std::make_shared<RecordingWatcher>();
  ASSERT_THAT(watcher->Watch(*manager, job.name), IsOk());
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(watcher->WaitForEnd().state, JobState::kSucceeded);
}

// ---- A store that fails.

class StoreFaultTest : public JobManagerTest {
 protected:
  // Updates of jobs in this state fail from now on, until Heal.
  void Break(JobState state) {
    store_.update_fault = [this, state](const Job& job) -> absl::Status {
      if (broken_ && job.state == state) return absl::DataLossError("the disk is full");
      return absl::OkStatus();
    };
  }
  void Heal() { broken_ = false; }
  std::atomic<bool> broken_ = true;
};

TEST_F(StoreFaultTest, AStartThatCannotBeStoredFailsTheJob) {
  Break(JobState::kRunning);
  const Job job = Submit();
  const Job ended = Watch(job.name)->WaitForEnd();
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_THAT(ended.error, StatusIs(absl::StatusCode::kDataLoss, "", "disk is full"));
  EXPECT_EQ(runner_.runs(), 0u);
}

TEST_F(StoreFaultTest, ProgressThatCannotBeStoredIsAnnouncedAndTheRunGoesOn) {
  const Job job = SubmitRunning();
  const auto watcher = Watch(job.name);
  Break(JobState::kRunning);
  Report(job.name, 100);
  Await([&] { return !listener_.errors().empty(); });
  EXPECT_THAT(listener_.errors(), ElementsAre(StatusIs(absl::StatusCode::kDataLoss)));
  Heal();
  Report(job.name, 200);
  EXPECT_EQ(store_.progress_updates, 0) << "the next try is a second later";
  clock_.Advance(absl::Seconds(1));
  Report(job.name, 300);
  EXPECT_EQ(store_.Get(job.name)->progress->iteration, 300);
  EXPECT_EQ(RunTo(job.name, ResultWith(StopCause::kIterations)).state, JobState::kSucceeded);
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->progress(), ElementsAre(100, 200, 300)) << "watchers lose nothing by it";
}

// However often a run reports.
TEST_F(RunTest, ProgressIsStoredOnceASecondAndWithTheEnd) {
  const Job job = SubmitRunning();
  Report(job.name, 1);
  for (int64_t i = 2; i <= 100; ++i) runner_.Report(job.name, i);
  Report(job.name, 101);
  EXPECT_EQ(store_.progress_updates, 1);
  EXPECT_EQ(store_.Get(job.name)->progress->iteration, 1);
  EXPECT_EQ((*manager_->List({}, 1, "")).jobs[0].progress->iteration, 101) << "as it is";
  clock_.Advance(absl::Seconds(1));
  Report(job.name, 102);
  EXPECT_EQ(store_.progress_updates, 2);
  Report(job.name, 103);
  EXPECT_EQ(store_.progress_updates, 2);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(store_.Get(job.name)->progress->iteration, 103);
}

TEST_F(StoreFaultTest, AnEndThatCannotBeStoredIsKeptUntilItCan) {
  Break(JobState::kSucceeded);
  const Job job = Submit();
  const Job ended = RunTo(runner_.WaitForRun(0).name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(ended.state, JobState::kSucceeded);
  manager_->Drain(absl::ZeroDuration());
  EXPECT_THAT(listener_.errors(), SizeIs(1));
  EXPECT_EQ(Get(job.name).state, JobState::kSucceeded);
  EXPECT_EQ(store_.Get(job.name)->state, JobState::kRunning);
  EXPECT_EQ(Watch(job.name)->WaitForEnd().result->mask, "tensors/mask");

  manager_->CollectGarbage();
  EXPECT_THAT(listener_.errors(), SizeIs(2)) << "tried again, and said so";
  Heal();
  manager_->CollectGarbage();
  EXPECT_EQ(store_.Get(job.name)->state, JobState::kSucceeded);
  EXPECT_EQ(store_.Get(job.name)->revision, ended.revision);
}

TEST_F(StoreFaultTest, AnEndThatWasNeverStoredCanBeDeleted) {
  Break(JobState::kSucceeded);
  const Job job = Submit();
  RunTo(runner_.WaitForRun(0).name, ResultWith(StopCause::kIterations));
  ASSERT_THAT(manager_->Delete(job.name), IsOk());
  EXPECT_THAT(manager_->Get(job.name), StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND"));
  EXPECT_THAT(runner_.discarded(), ElementsAre(job.name));
}

TEST_F(StoreFaultTest, ADeletionThatFailsIsToldAndDiscardsNothing) {
  const Job job = SubmitRunning();
  RunTo(job.name, ResultWith(StopCause::kIterations));
  store_.delete_fault = [](std::string_view) { return absl::DataLossError("the disk is full"); };
  EXPECT_THAT(manager_->Delete(job.name), StatusIs(absl::StatusCode::kDataLoss));
  clock_.Advance(absl::Hours(25));
  manager_->CollectGarbage();
  EXPECT_THAT(listener_.errors(), ElementsAre(StatusIs(absl::StatusCode::kDataLoss)));
  EXPECT_THAT(runner_.discarded(), IsEmpty());
  EXPECT_EQ(Get(job.name).state, JobState::kSucceeded);
}

}  // namespace
}  // namespace sparsefw::server
