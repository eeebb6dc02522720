#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using testing::StatusIs;

using WatchTest = JobManagerTest;

// Holds a watcher's callback up until it is opened.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return open_; }));
  }
  void WaitForArrival() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return arrived_; }));
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
  bool open_ = false;
};

TEST_F(WatchTest, SnapshotFirstThenEveryStateChangeAndProgress) {
  const Job blocker = SubmitRunning();
  Submit();
  const Job job = Submit();
  const auto watcher = Watch(job.name);
  ASSERT_THAT(watcher->seen(), SizeIs(1)) << "before Watch returned";
  EXPECT_EQ(watcher->seen()[0].job.queue_position, 1);
  ASSERT_THAT(manager_->Cancel(runner_.WaitForRun(0).name), IsOk());
  runner_.Finish(blocker.name, ResultWith(StopCause::kCancelled));
  runner_.Finish(runner_.WaitForRun(1).name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(2);
  runner_.Report(job.name, 100);
  runner_.Report(job.name, 200);
  runner_.Finish(job.name, ResultWith(StopCause::kIterations));
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->states(),
              ElementsAre(JobState::kQueued, JobState::kRunning, JobState::kSucceeded));
  EXPECT_THAT(watcher->progress(), ElementsAre(100, 200));
  EXPECT_EQ(watcher->seen().back().job.state_revision, watcher->seen().back().job.revision);
}

TEST_F(WatchTest, AWatcherThatComesBackIsToldEveryStateItMissed) {
  const Job blocker = SubmitRunning();
  const Job job = Submit();
  RunTo(blocker.name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(1);
  runner_.Report(job.name, 100);

  const auto running = Watch(job.name, job.revision);
  EXPECT_THAT(running->states(), ElementsAre(JobState::kQueued, JobState::kRunning));
  EXPECT_THAT(running->progress(), ElementsAre(100)) << "where it is now";
  const auto seen = running->seen();
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[0].job.revision, job.revision);
  EXPECT_EQ(seen[1].job.state_revision, seen[1].job.revision);
  EXPECT_FALSE(seen[1].job.progress);
  EXPECT_EQ(seen[0].job.start_time, absl::InfinitePast());

  RunTo(job.name, ResultWith(StopCause::kIterations));
  const auto all = Watch(job.name, job.revision);
  EXPECT_THAT(all->states(),
              ElementsAre(JobState::kQueued, JobState::kRunning, JobState::kSucceeded));
  for (const auto& event : all->seen()) {
    EXPECT_EQ(event.job.result.has_value(), event.job.state == JobState::kSucceeded);
    EXPECT_EQ(event.job.end_time != absl::InfinitePast(), event.job.state == JobState::kSucceeded);
  }
  // It had seen progress: that comes from the same state.
  const auto end = Watch(job.name, seen[2].job.revision);
  EXPECT_THAT(end->states(), ElementsAre(JobState::kRunning, JobState::kSucceeded));
  EXPECT_EQ(end->seen()[0].job.revision, seen[2].job.revision);
  // Nothing was missed, or nothing can be known: one snapshot of now.
  for (const int64_t after : {Get(job.name).revision, int64_t{1} << 40, int64_t{0}}) {
    EXPECT_THAT(Watch(job.name, after)->states(), ElementsAre(JobState::kSucceeded)) << after;
  }
}

TEST_F(WatchTest, ALateWatcherStartsFromTheStateAsItIs) {
  const Job job = SubmitRunning();
  runner_.Report(job.name, 100);
  const auto during = Watch(job.name);
  EXPECT_EQ(during->seen()[0].job.progress->iteration, 100);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  during->WaitForEnd();
  EXPECT_THAT(during->states(), ElementsAre(JobState::kRunning, JobState::kSucceeded));
  const auto after = Watch(job.name);
  EXPECT_THAT(after->states(), ElementsAre(JobState::kSucceeded));
  EXPECT_TRUE(after->seen()[0].job.result);
}

TEST_F(WatchTest, UnknownJobsAreNotFoundAndNothingIsCalled) {
  auto watcher = std::make_shared<RecordingWatcher>();
  EXPECT_THAT(manager_->Watch("jobs/none", watcher),
              StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none"));
  EXPECT_THAT(watcher->seen(), IsEmpty());
}

TEST_F(WatchTest, ACallbackThatLingersHoldsNoOtherThreadUp) {
  const Job job = SubmitRunning();
  Gate gate;
  auto slow = std::make_shared<RecordingWatcher>();
  slow->during_callback = [&](JobWatcher::Event event, const Job&) {
    if (event == JobWatcher::Event::kProgress) gate.Pass();
  };
  ASSERT_THAT(manager_->Watch(job.name, slow), IsOk());
  std::thread reporter([&] { runner_.Report(job.name, 1); });
  gate.WaitForArrival();
  // While the worker is held up in the callback:
  EXPECT_EQ(Get(job.name).progress->iteration, 1);
  EXPECT_THAT(Watch(job.name)->states(), ElementsAre(JobState::kRunning));
  const Job queued = Submit();
  const auto other = Watch(queued.name);
  ASSERT_THAT(manager_->Cancel(queued.name), IsOk());
  EXPECT_THAT(other->states(), ElementsAre(JobState::kQueued, JobState::kCancelled));
  gate.Open();
  reporter.join();
  RunTo(job.name, ResultWith(StopCause::kIterations));
  slow->WaitForEnd();
  EXPECT_THAT(slow->states(), ElementsAre(JobState::kRunning, JobState::kSucceeded));
}

// Progress gives way to newer progress; state changes stay.
TEST_F(WatchTest, WaitingProgressIsCoalesced) {
  Gate gate;
  auto watcher = std::make_shared<RecordingWatcher>();
  std::atomic<bool> first = true;
  watcher->during_callback = [&](JobWatcher::Event event, const Job&) {
    if (event == JobWatcher::Event::kSnapshot && first.exchange(false)) gate.Pass();
  };
  const Job blocker = SubmitRunning();
  const Job job = Submit();
  // Watch delivers the snapshot itself, so while it is held up everything waits.
  std::thread watching([&] { EXPECT_THAT(manager_->Watch(job.name, watcher), IsOk()); });
  gate.WaitForArrival();
  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(1);
  for (int64_t i = 1; i <= 50; ++i) runner_.Report(job.name, i);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_THAT(watcher->seen(), IsEmpty());
  gate.Open();
  watching.join();
  watcher->WaitForEnd();
  EXPECT_THAT(watcher->states(),
              ElementsAre(JobState::kQueued, JobState::kRunning, JobState::kSucceeded));
  EXPECT_THAT(watcher->progress(), ElementsAre(50));
}

TEST_F(WatchTest, NothingIsCalledAfterUnwatch) {
  const Job job = SubmitRunning();
  auto watcher = std::make_shared<RecordingWatcher>();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const int64_t id, manager_->Watch(job.name, watcher));
  const auto other = Watch(job.name);
  manager_->Unwatch(id);
  manager_->Unwatch(id);
  EXPECT_EQ(watcher.use_count(), 1) << "let go";
  runner_.Report(job.name, 1);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  other->WaitForEnd();
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kRunning));
  EXPECT_THAT(other->states(), ElementsAre(JobState::kRunning, JobState::kSucceeded));
}

TEST_F(WatchTest, UnwatchWaitsForTheCallbackThatRuns) {
  const Job job = SubmitRunning();
  Gate gate;
  auto watcher = std::make_shared<RecordingWatcher>();
  watcher->during_callback = [&](JobWatcher::Event event, const Job&) {
    if (event == JobWatcher::Event::kProgress) gate.Pass();
  };
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const int64_t id, manager_->Watch(job.name, watcher));
  std::thread reporter([&] { runner_.Report(job.name, 1); });
  gate.WaitForArrival();
  std::atomic<bool> gate_open = false;
  std::thread unwatch([&] {
    manager_->Unwatch(id);
    EXPECT_TRUE(gate_open.load()) << "returned while the callback ran";
  });
  gate_open = true;
  gate.Open();
  unwatch.join();
  reporter.join();
  EXPECT_THAT(watcher->seen(), SizeIs(2));
}

TEST_F(WatchTest, CallbacksMayCallTheManager) {
  const Job job = SubmitRunning();
  const Job queued = Submit();
  auto watcher = std::make_shared<RecordingWatcher>();
  watcher->during_callback = [&](JobWatcher::Event event, const Job& seen) {
    EXPECT_THAT(manager_->Get(seen.name), IsOk());
    // The end that this makes is told after the snapshot, not inside it.
    if (event == JobWatcher::Event::kSnapshot) {
      EXPECT_THAT(manager_->Cancel(seen.name), IsOk());
    }
  };
  ASSERT_THAT(manager_->Watch(queued.name, watcher), IsOk());
  EXPECT_THAT(watcher->states(), ElementsAre(JobState::kQueued, JobState::kCancelled));
}

}  // namespace
}  // namespace sparsefw::server
