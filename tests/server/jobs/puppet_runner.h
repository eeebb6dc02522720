// A job runner that does what a test tells it, when it tells it.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_PUPPET_RUNNER_H_
#define SPARSEFW_TESTS_SERVER_JOBS_PUPPET_RUNNER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/jobs/job_runner.h"
#include "tests/testing/hang.h"

namespace sparsefw::server {

inline JobResult ResultWith(StopCause cause) {
  JobResult result;
  result.mask = "tensors/mask";
  result.device = "cpu";
  result.solve.stop_cause = cause;
  result.solve.iterations = 7;
  return result;
}

class PuppetRunner final : public JobRunner {
 public:
  using Reporter = std::function<void(const ProgressReport&)>;
  // The next step of a run; a value ends it.
  using Step = std::function<std::optional<absl::StatusOr<JobResult>>(const Reporter&)>;

  absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec& spec, const Owner& owner,
                                                  Values values) override {
    EXPECT_FALSE(owner.tenant.empty());
    prepared_.fetch_add(1);
    if (values == Values::kCheckedBefore) prepared_unchecked_.fetch_add(1);
    if (on_prepare) {
      const absl::Status status = on_prepare(spec);
      if (!status.ok()) return status;
    }
    auto inputs = std::make_shared<CountedInputs>(*this);
    inputs->need.working_bytes = working_bytes_of ? working_bytes_of(spec) : 0;
    inputs->cost = 1e9;
    if (device_need_of) inputs->need.device = device_need_of(spec);
    return inputs;
  }

  absl::StatusOr<DeviceNeed> Check(const JobSpec& spec, const InputSpecs& inputs) override {
    checked_inputs = inputs;
    if (on_prepare) {
      if (const absl::Status status = on_prepare(spec); !status.ok()) return status;
    }
    return device_need_of ? device_need_of(spec) : DeviceNeed();
  }

  absl::StatusOr<JobResult> Run(const Job& job, Inputs& inputs, const Placement& placement,
                                const StopSignal& stop, const Reporter& report) override {
    EXPECT_EQ(inputs.rows, 3);
    SharedGram::Gram gram;
    if (placement.gram != nullptr) {
      absl::StatusOr<SharedGram::Gram> got =
          placement.gram->Get([&] { return upload_gram(placement.device); }, stop);
      if (!got.ok()) return got.status();
      gram = *std::move(got);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    runs_.push_back(job);
    devices_.push_back(placement.device);
    stops_[job.name] = &stop;
    changed_.notify_all();
    while (true) {
      // Polls because the signal has no way to wake anybody.
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      if (obey_stop && stop.requested()) return ResultWith(StopCause::kCancelled);
      std::deque<Step>& steps = steps_[job.name];
      if (steps.empty()) continue;
      const Step step = std::move(steps.front());
      steps.pop_front();
      lock.unlock();
      auto outcome = step(report);
      lock.lock();
      ++steps_done_[job.name];
      changed_.notify_all();
      if (outcome) return *std::move(outcome);
    }
  }

  RunMark Saved(const std::string& job) const override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = saved_.find(job);
    return found == saved_.end() ? RunMark() : found->second;
  }
  // The job has left a checkpoint.
  void Save(const std::string& job, int64_t iteration) {
    std::lock_guard<std::mutex> lock(mutex_);
    saved_[job] = {0, iteration};
  }

  void ReleaseInputs(const JobSpec&) override { released_inputs_.fetch_add(1); }
  void Discard(const Job& job) override {
    std::lock_guard<std::mutex> lock(mutex_);
    discarded_.push_back(job.name);
  }

  // The job of the n-th run, counted from 0, as Run got it.
  Job WaitForRun(size_t n) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool came = changed_.wait_for(lock, kHang, [&] { return runs_.size() > n; });
    EXPECT_TRUE(came) << "run " << n << " did not start";
    return came ? runs_[n] : Job();
  }
  // Where the n-th run runs.
  std::string WaitForDevice(size_t n) {
    WaitForRun(n);
    std::lock_guard<std::mutex> lock(mutex_);
    return devices_.size() > n ? devices_[n] : "none";
  }
  size_t runs() {
    std::lock_guard<std::mutex> lock(mutex_);
    return runs_.size();
  }

  // The run does it on the worker's thread, soon.
  void Do(const std::string& job, Step step) {
    std::lock_guard<std::mutex> lock(mutex_);
    steps_[job].push_back(std::move(step));
    changed_.notify_all();
  }
  void Finish(const std::string& job, absl::StatusOr<JobResult> outcome) {
    Do(job, [outcome = std::move(outcome)](const Reporter&) { return outcome; });
  }
  // Returns once the report is made.
  void Report(const std::string& job, int64_t iteration) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int before = steps_done_[job];
    steps_[job].push_back([iteration](const Reporter& report) {
      ProgressReport progress;
      progress.iteration = iteration;
      report(progress);
      return std::nullopt;
    });
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kHang, [&] { return steps_done_[job] > before; }));
  }

  // Whether a job that runs has been asked to stop.
  bool stop_requested(const std::string& job) {
    std::lock_guard<std::mutex> lock(mutex_);
    return stops_.at(job)->requested();
  }
  std::vector<std::string> discarded() {
    std::lock_guard<std::mutex> lock(mutex_);
    return discarded_;
  }
  int prepared() const { return prepared_.load(); }
  int prepared_unchecked() const { return prepared_unchecked_.load(); }  // Values::kCheckedBefore
  // Jobs whose own tensors were dropped.
  int released_inputs() const { return released_inputs_.load(); }
  int live_inputs() const { return live_inputs_.load(); }

  std::function<absl::Status(const JobSpec&)> on_prepare;   // set before the first job
  std::function<int64_t(const JobSpec&)> working_bytes_of;  // likewise
  std::function<DeviceNeed(const JobSpec&)> device_need_of;
  std::function<absl::StatusOr<SharedGram::Gram>(const std::string& device)> upload_gram;
  std::atomic<bool> obey_stop = false;
  InputSpecs checked_inputs;  // of the last Check

 private:
  struct CountedInputs final : Inputs {
    explicit CountedInputs(PuppetRunner& the_runner) : runner(the_runner) {
      rows = 3;
      cols = 5;
      runner.live_inputs_.fetch_add(1);
    }
    ~CountedInputs() override { runner.live_inputs_.fetch_sub(1); }
    PuppetRunner& runner;
  };

  std::atomic<int> prepared_ = 0;
  std::atomic<int> prepared_unchecked_ = 0;
  std::atomic<int> released_inputs_ = 0;
  std::atomic<int> live_inputs_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, RunMark> saved_;
  std::vector<Job> runs_;
  std::vector<std::string> devices_;
  std::map<std::string, std::deque<Step>> steps_;
  std::map<std::string, int> steps_done_;
  std::map<std::string, const StopSignal*> stops_;
  std::vector<std::string> discarded_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_PUPPET_RUNNER_H_
