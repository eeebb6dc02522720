// Jobs that share Grams, in any order, on devices that are short of memory: what
// is on a device never exceeds what it has, and in the end nothing is left.
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"
#include "tests/server/jobs/fake_gram.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;

constexpr int kSubmitters = 6;
constexpr int kJobs = 60;  // of each
constexpr int64_t kDeviceBytes = 100;
constexpr unsigned kSeed = 20250117;

// Takes device memory as it was reserved. The third device is lost after some runs.
class MemoryRunner final : public JobRunner {
 public:
  absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec& spec, const Owner&,
                                                  Values) override {
    auto inputs = std::make_shared<Inputs>();
    DeviceNeed& need = inputs->need.device;
    need.devices = {"cuda:0", "cuda:1", "cuda:2"};
    need.bytes = std::stoll(spec.labels.at("bytes"));
    need.gram = spec.gram;
    need.gram_bytes = spec.gram.empty() ? 0 : 10 * static_cast<int64_t>(spec.gram.size());
    return inputs;
  }
  absl::StatusOr<DeviceNeed> Check(const JobSpec&, const InputSpecs&) override {
    return DeviceNeed();
  }
  absl::StatusOr<JobResult> Run(const Job&, Inputs& inputs, const Placement& placement,
                                const StopSignal& stop,
                                const std::function<void(const ProgressReport&)>&) override {
    if (placement.device == "cuda:2" && runs_on_last_.fetch_add(1) >= 10) return Lost();
    SharedGram::Gram gram;
    if (placement.gram != nullptr) {
      const auto upload = [&]() -> absl::StatusOr<SharedGram::Gram> {
        if (stop.requested()) return absl::CancelledError("stopped");
        return memory.Upload(placement.device, inputs.need.device.gram_bytes);
      };
      SPARSEFW_ASSIGN_OR_RETURN(gram, placement.gram->Get(upload, stop));
    }
    memory.Take(placement.device, inputs.need.device.bytes);
    for (int i = 0; i < 5; ++i) std::this_thread::yield();
    memory.Take(placement.device, -inputs.need.device.bytes);
    return ResultWith(StopCause::kIterations);
  }
  RunMark Saved(const std::string&) const override { return {}; }
  void ReleaseInputs(const JobSpec&) override {}
  void Discard(const Job&) override {}

  FakeMemory memory{kDeviceBytes};

 private:
  static absl::Status Lost() { return WithReason(absl::InternalError("gone"), "DEVICE_LOST"); }

  std::atomic<int> runs_on_last_ = 0;
};

class GramsStress {
 public:
  GramsStress() {
    JobManagerOptions options;
    options.clock = &clock_;
    options.devices = {
        {"cuda:0", kDeviceBytes, 3}, {"cuda:1", kDeviceBytes, 3}, {"cuda:2", kDeviceBytes, 3}};
    manager_ = std::make_unique<JobManager>(options, &store_, &runner_, &listener_);
  }

  void Submitter(unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kJobs; ++i) {
      JobSpec spec;
      spec.gram = std::string(random() % 5, 'g');  // "", "g", "gg", ...: 0 to 40 bytes
      spec.labels["bytes"] = std::to_string(1 + random() % 60);
      spec.priority = static_cast<int>(random() % 3);
      if (random() % 6 == 0) spec.deadline = absl::Milliseconds(1 + random() % 20);
      const auto job = manager_->Submit(spec, "", {""}, {}, false);
      ASSERT_THAT(job, IsOk());
      auto watcher = std::make_shared<RecordingWatcher>();
      ASSERT_THAT(watcher->Watch(*manager_, job->name), IsOk());
      if (random() % 4 == 0) {
        EXPECT_THAT(manager_->Cancel(job->name), IsOk());
      }
      clock_.Advance(absl::Milliseconds(1));
      std::lock_guard<std::mutex> lock(mutex_);
      watchers_.push_back(watcher);
    }
  }

  void Run() {
    std::vector<std::thread> submitters;
    for (unsigned i = 0; i < kSubmitters; ++i) {
      submitters.emplace_back([this, i] { Submitter(kSeed + i); });
    }
    for (std::thread& thread : submitters) thread.join();
    for (const auto& watcher : watchers_) watcher->WaitForEnd();
    for (const char* device : {"cuda:0", "cuda:1", "cuda:2"}) {
      while (Busy()) std::this_thread::yield();
      EXPECT_EQ(runner_.memory.taken(device), 0) << device;
    }
    const std::vector<DeviceUsage> usage = manager_->devices();
    EXPECT_TRUE(usage[2].lost);
    EXPECT_GT(usage[0].gram_uploads, 0);
    EXPECT_GT(usage[0].gram_reuses, 0);
    for (const DeviceUsage& one : usage) {
      EXPECT_EQ(one.reserved_bytes, 0);
      EXPECT_EQ(one.gram_uploads, runner_.memory.uploads(one.device.name));
    }
  }

 private:
  bool Busy() const {
    for (const DeviceUsage& usage : manager_->devices()) {
      if (usage.jobs > 0 || usage.gram_bytes > 0) return true;
    }
    return false;
  }

  FakeClock clock_;
  FaultyStore store_;
  MemoryRunner runner_;
  std::mutex mutex_;
  RecordingListener listener_;
  std::vector<std::shared_ptr<RecordingWatcher>> watchers_;
  std::unique_ptr<JobManager> manager_;
};

TEST(GramsStressTest, DevicesNeverHoldMoreThanTheyHaveAndNothingIsLeft) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  GramsStress().Run();
}

}  // namespace
}  // namespace sparsefw::server
