#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
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
    EXPECT_TRUE(changed_.wait_for(lock, kHang, [this] { return open_; }));
  }
  void WaitForArrival() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kHang, [this] { return arrived_; }));
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
  Report(job.name, 100);
  Report(job.name, 200);
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
  Report(job.name, 100);

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
  for (const int64_t after : {Get(job.name).revision, int64_t{0}}) {
    EXPECT_THAT(Watch(job.name, after)->states(), ElementsAre(JobState::kSucceeded)) << after;
  }
}

// Another process, with another store, may have told the watcher of it.
TEST_F(WatchTest, ARevisionThatTheJobDoesNotHaveIsRefused) {
  const Job job = SubmitRunning();
  const auto refused = StatusIs(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN", job.name);
  EXPECT_THAT(manager_->Watch(job.name, Get(job.name).revision + 1, [] {}), refused);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_THAT(manager_->Watch(job.name, Get(job.name).revision + 1, [] {}), refused);
  EXPECT_THAT(manager_->Watch(job.name, Get(job.name).revision, [] {}), IsOk());
}

TEST_F(WatchTest, ALateWatcherStartsFromTheStateAsItIs) {
  const Job job = SubmitRunning();
  Report(job.name, 100);
  const auto during = Watch(job.name);
  EXPECT_EQ(during->seen()[0].job.progress->iteration, 100);
  RunTo(job.name, ResultWith(StopCause::kIterations));
  during->WaitForEnd();
  EXPECT_THAT(during->states(), ElementsAre(JobState::kRunning, JobState::kSucceeded));
  const auto after = Watch(job.name);
  EXPECT_THAT(after->states(), ElementsAre(JobState::kSucceeded));
  EXPECT_TRUE(after->seen()[0].job.result);
}

TEST_F(WatchTest, UnknownJobsAreNotFound) {
  EXPECT_THAT(manager_->Watch("jobs/none", 0, [] { FAIL() << "nothing to wake for"; }),
              StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none"));
}

TEST_F(WatchTest, ASlowWakeHoldsNoOtherThreadUp) {
  const Job job = SubmitRunning();
  Gate gate;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto slow,
                                manager_->Watch(job.name, 0, [&gate] { gate.Pass(); }));
  std::thread reporter([&] { runner_.Report(job.name, 1); });
  gate.WaitForArrival();
  // While the thread of all watchers is held up in the call:
  reporter.join();
  EXPECT_EQ(Get(job.name).progress->iteration, 1);
  EXPECT_THAT(Watch(job.name)->states(), ElementsAre(JobState::kRunning));
  const Job queued = Submit();
  const auto other = Watch(queued.name);
  ASSERT_THAT(manager_->Cancel(queued.name), IsOk());
  EXPECT_EQ(Get(queued.name).state, JobState::kCancelled);
  gate.Open();
  other->WaitForEnd();
  EXPECT_THAT(other->states(), ElementsAre(JobState::kQueued, JobState::kCancelled));
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(slow->Next()->kind, JobEvent::Kind::kSnapshot);
  EXPECT_EQ(slow->Next()->kind, JobEvent::Kind::kStateChange) << "older progress is dropped";
  EXPECT_TRUE(slow->ended());
}

TEST_F(WatchTest, AWatcherThatDoesNotPullKeepsStatesAndTheLatestProgress) {
  const Job blocker = SubmitRunning();
  const Job job = Submit();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto queue, manager_->Watch(job.name, 0, [] {}));
  runner_.Finish(blocker.name, ResultWith(StopCause::kIterations));
  runner_.WaitForRun(1);
  for (int64_t i = 1; i < 50; ++i) runner_.Report(job.name, i);
  Report(job.name, 50);
  AwaitDelivery();
  EXPECT_EQ(queue->Next()->job->state, JobState::kQueued);
  EXPECT_EQ(queue->Next()->job->state, JobState::kRunning);
  EXPECT_EQ(queue->Next()->progress->report.iteration, 50);
  EXPECT_FALSE(queue->Next().has_value());
  EXPECT_FALSE(queue->ended());
  RunTo(job.name, ResultWith(StopCause::kIterations));
  EXPECT_EQ(queue->Next()->job->state, JobState::kSucceeded);
  EXPECT_TRUE(queue->ended());
}

TEST_F(WatchTest, AWatchEndsWithItsQueue) {
  const Job job = SubmitRunning();
  std::atomic<int> wakes = 0;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto queue, manager_->Watch(job.name, 0, [&wakes] { ++wakes; }));
  Report(job.name, 1);
  Await([&] { return wakes == 1; });
  AwaitDelivery();
  EXPECT_EQ(queue.use_count(), 1) << "the job does not own it";
  queue.reset();
  Report(job.name, 2);
  AwaitDelivery();
  EXPECT_EQ(wakes, 1);
}

TEST_F(WatchTest, WakesMayCallTheManager) {
  const Job job = SubmitRunning();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto queue, manager_->Watch(job.name, 0, [&] {
    EXPECT_THAT(manager_->Get(job.name), IsOk());
    EXPECT_THAT(manager_->Watch(job.name, 0, [] {}), IsOk());
    EXPECT_THAT(manager_->Cancel(job.name), IsOk());
  }));
  runner_.Report(job.name, 1);
  Await([&] { return runner_.stop_requested(job.name); });
}

// Nothing of a report grows with the watchers on the thread that makes it: none of them is called
// there, and of many reports the newest is what they get.
TEST_F(WatchTest, AReportCallsNoWatcherOnItsThread) {
  constexpr int kWatchers = 1000;
  constexpr int kReports = 2000;
  const Job job = SubmitRunning();
  std::mutex mutex;
  std::set<std::thread::id> waking;
  std::atomic<int> wakes = 0;
  std::vector<std::shared_ptr<EventQueue>> queues;
  for (int i = 0; i < kWatchers; ++i) {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(auto queue, manager_->Watch(job.name, 0, [&] {
      ++wakes;
      std::lock_guard<std::mutex> lock(mutex);
      waking.insert(std::this_thread::get_id());
    }));
    queues.push_back(std::move(queue));
  }
  std::thread::id reporting;
  runner_.Do(job.name, [&](const PuppetRunner::Reporter& report) {
    reporting = std::this_thread::get_id();
    ProgressReport progress;
    for (progress.iteration = 1; progress.iteration <= kReports; ++progress.iteration) {
      report(progress);
    }
    return std::nullopt;
  });
  Report(job.name, 9999);
  AwaitDelivery();
  EXPECT_THAT(waking, SizeIs(1));
  EXPECT_FALSE(waking.contains(reporting));
  EXPECT_LT(wakes, kWatchers * kReports / 4);
  for (const auto& queue : queues) {
    EXPECT_EQ(queue->Next()->kind, JobEvent::Kind::kSnapshot);
    EXPECT_EQ(queue->Next()->progress->report.iteration, 9999);
  }
  RunTo(job.name, ResultWith(StopCause::kIterations));
}

TEST_F(WatchTest, ProgressSharesTheJobThatItIsOf) {
  const Job job = SubmitRunning();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto queue, manager_->Watch(job.name, 0, [] {}));
  Report(job.name, 1);
  AwaitDelivery();
  queue->Next();
  const std::optional<JobEvent> first = queue->Next();
  Report(job.name, 2);
  AwaitDelivery();
  const std::optional<JobEvent> second = queue->Next();
  EXPECT_EQ(first->job, second->job) << "nothing was copied";
  EXPECT_EQ(second->progress->report.iteration, 2);
  EXPECT_GT(second->revision(), first->revision());
}

}  // namespace
}  // namespace sparsefw::server
