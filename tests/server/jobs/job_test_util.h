// Watchers, listeners, stores and the fixture that tests of the job manager share.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_JOB_TEST_UTIL_H_
#define SPARSEFW_TESTS_SERVER_JOBS_JOB_TEST_UTIL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_store.h"
#include "server/storage/sqlite_stores.h"
#include "sparsefw/status_macros.h"
#include "tests/server/jobs/fake_clock.h"
#include "tests/server/jobs/puppet_runner.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {

// The job that a watcher knows after the event.
inline Job JobAfter(const JobEvent& event) {
  Job job = *event.job;
  if (event.progress.has_value()) {
    job.progress = event.progress->report;
    job.revision = event.progress->revision;
  }
  return job;
}

// Records the events of a job and checks what every watcher relies on: the
// snapshot first and once, revisions that grow.
class RecordingWatcher : public std::enable_shared_from_this<RecordingWatcher> {
 public:
  struct Seen {
    JobEvent::Kind kind;
    Job job;
  };

  absl::Status Watch(JobManager& manager, const std::string& name, int64_t after_revision = 0) {
    auto queue = manager.Watch(name, after_revision, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Pull();
    });
    if (!queue.ok()) return queue.status();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_ = *std::move(queue);
    }
    Pull();
    return absl::OkStatus();
  }

  std::vector<Seen> seen() {
    std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }
  // The states of the snapshot and of every state change.
  std::vector<JobState> states() {
    std::vector<JobState> states;
    for (const Seen& one : seen()) {
      if (one.kind != JobEvent::Kind::kProgress) states.push_back(one.job.state);
    }
    return states;
  }
  // Iterations of the progress seen.
  std::vector<int64_t> progress() {
    std::vector<int64_t> iterations;
    for (const Seen& one : seen()) {
      if (one.kind == JobEvent::Kind::kProgress) iterations.push_back(one.job.progress->iteration);
    }
    return iterations;
  }
  Job WaitForEnd() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool ended = changed_.wait_for(
        lock, kHang, [&] { return !seen_.empty() && IsTerminal(seen_.back().job.state); });
    EXPECT_TRUE(ended) << "the job did not end";
    return ended ? seen_.back().job : Job();
  }
  // Until the queue says that the job goes on in a later process.
  void WaitForSuspension() {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kHang, [&] { return queue_->suspended(); }));
  }
  void WaitForEvents(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kHang, [&] { return seen_.size() >= count; }));
  }

  std::function<void(const JobEvent&)> during_callback;  // set before watching

 private:
  void Pull() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_ == nullptr) return;
    while (const std::optional<JobEvent> event = queue_->Next()) {
      if (during_callback) during_callback(*event);
      EXPECT_EQ(event->kind == JobEvent::Kind::kSnapshot, seen_.empty());
      if (!seen_.empty()) {
        EXPECT_GT(event->revision(), seen_.back().job.revision);
      }
      seen_.push_back({event->kind, JobAfter(*event)});
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<EventQueue> queue_;
  std::vector<Seen> seen_;
};

class RecordingListener final : public JobListener {
 public:
  void OnAccepted(const Job& job) override { Add("accepted " + job.name); }
  void OnRecovered(const Job& job) override { Add("recovered " + job.name); }
  void OnStarted(const Job& job) override { Add("started " + job.name); }
  void OnInterrupted(const Job& job) override {
    Add("interrupted " + job.name);
    if (on_interrupted) on_interrupted(job);
  }
  void OnEnded(const Job& job) override { Add("ended " + job.name); }
  void OnBackgroundError(const Job&, const absl::Status& error) override {
    std::lock_guard<std::mutex> lock(mutex_);
    errors_.push_back(error);
  }
  void OnDeviceLost(const std::string& device, const Job& job, const absl::Status&) override {
    Add("lost " + device + " " + job.name);
  }
  std::vector<std::string> calls() {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  std::vector<absl::Status> errors() {
    std::lock_guard<std::mutex> lock(mutex_);
    return errors_;
  }

  std::function<void(const Job&)> on_interrupted;  // set while no job is on its way

 private:
  void Add(std::string call) {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
  }
  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::vector<absl::Status> errors_;
};

// The store in memory, with faults where a test wants them.
class FaultyStore final : public JobStore {
 public:
  bool durable() const override { return is_durable; }
  absl::Status Insert(const Job& job, std::string_view request_id, std::string_view fingerprint,
                      const JobRoom& room) override {
    if (const absl::Status fault = insert_fault(job); !fault.ok()) return fault;
    return store_->Insert(job, request_id, fingerprint, room);
  }
  absl::Status Update(const Job& job) override {
    if (const absl::Status fault = update_fault(job); !fault.ok()) return fault;
    return store_->Update(job);
  }
  absl::Status UpdateProgress(std::string_view name, const JobProgress& progress) override {
    SPARSEFW_RETURN_IF_ERROR(update_fault(*store_->Get(name)));
    progress_updates.fetch_add(1);
    return store_->UpdateProgress(name, progress);
  }
  absl::StatusOr<Job> Get(std::string_view name) const override {
    gets.fetch_add(1);
    if (const absl::Status fault = get_fault(name); !fault.ok()) return fault;
    return store_->Get(name);
  }
  absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant) const override {
    return store_->Has(name, tenant);
  }
  absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const override {
    return store_->FindRequest(tenant, request_id);
  }
  absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const override {
    return store_->ListExpired(now, limit);
  }
  absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                            std::string_view page_token) const override {
    return store_->List(filter, page_size, page_token);
  }
  absl::Status Delete(std::string_view name) override {
    if (const absl::Status fault = delete_fault(name); !fault.ok()) return fault;
    return store_->Delete(name);
  }
  absl::StatusOr<std::map<JobState, int64_t>> CountByState() const override {
    if (!count_fault.ok()) return count_fault;
    return store_->CountByState();
  }
  absl::StatusOr<JobStoreUsage> Usage() const override { return store_->Usage(); }

  // Jobs outlive the manager, as they would the process.
  bool is_durable = false;
  std::atomic<int> progress_updates = 0;
  mutable std::atomic<int> gets = 0;  // of whole jobs
  // Set while no job is on its way.
  std::function<absl::Status(const Job&)> insert_fault = [](const Job&) {
    return absl::OkStatus();
  };
  std::function<absl::Status(const Job&)> update_fault = insert_fault;
  absl::Status count_fault;
  std::function<absl::Status(std::string_view)> delete_fault = [](std::string_view) {
    return absl::OkStatus();
  };
  std::function<absl::Status(std::string_view)> get_fault = delete_fault;

 private:
  const std::unique_ptr<JobStore> store_ = NewMemoryJobStore().value();
};

class JobManagerTest : public ::testing::Test {
 protected:
  JobManagerTest() { Restart({}); }

  void Restart(JobManagerOptions options) {
    manager_.reset();
    options.clock = &clock_;
    manager_ = std::make_unique<JobManager>(options, &store_, &runner_, &listener_);
  }

  // An accepted job; the test has failed when there is none.
  Job Submit(const JobSpec& spec = {}, const std::string& request_id = "",
             const std::string& tenant = std::string(kDefaultTenant)) {
    auto job = manager_->Submit(spec, request_id, {"body"}, Owner{tenant, "somebody"}, false);
    EXPECT_THAT(job, testing::IsOk());
    return job.ok() ? *std::move(job) : Job();
  }
  // Occupies the only worker.
  Job SubmitRunning() {
    const size_t before = runner_.runs();
    const Job job = Submit();
    EXPECT_EQ(runner_.WaitForRun(before).name, job.name);
    return job;
  }
  // Every watcher stays registered until the test ends.
  std::shared_ptr<RecordingWatcher> Watch(const std::string& name, int64_t after_revision = 0) {
    auto watcher = std::make_shared<RecordingWatcher>();
    EXPECT_THAT(watcher->Watch(*manager_, name, after_revision), testing::IsOk());
    return watcher;
  }
  Job Get(const std::string& name) {
    auto job = manager_->Get(name);
    EXPECT_THAT(job, testing::IsOk());
    return job.ok() ? *std::move(job) : Job();
  }
  // Returns once the job has the progress.
  void Report(const std::string& name, int64_t iteration) {
    runner_.Report(name, iteration);
    Await([&] {
      const Job job = Get(name);
      return job.progress.has_value() && job.progress->iteration == iteration;
    });
  }
  // Until watchers have what has happened so far: they are served in order.
  void AwaitDelivery() {
    const Job last = Submit();
    const auto watcher = Watch(last.name);
    EXPECT_THAT(manager_->Cancel(last.name), testing::IsOk());
    runner_.Finish(last.name, ResultWith(StopCause::kCancelled));
    watcher->WaitForEnd();
  }
  // Until `done`, which another thread brings about.
  static void Await(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (!done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(done());
  }
  // The job after its run has given this outcome.
  Job RunTo(const std::string& name, absl::StatusOr<JobResult> outcome) {
    const auto watcher = Watch(name);
    runner_.Finish(name, std::move(outcome));
    return watcher->WaitForEnd();
  }
  void TearDown() override {
    runner_.obey_stop = true;
    manager_.reset();
    EXPECT_EQ(runner_.live_inputs(), 0) << "tensors would stay locked";
  }

  FakeClock clock_;
  FaultyStore store_;
  PuppetRunner runner_;
  RecordingListener listener_;
  std::unique_ptr<JobManager> manager_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_JOB_TEST_UTIL_H_
