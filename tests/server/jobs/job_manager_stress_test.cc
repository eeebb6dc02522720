// Everything at once: submissions (some repeated), watchers that come and go,
// cancellations, deadlines, deletions, progress, and a drain at the end.
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;

constexpr int kSubmitters = 16;
constexpr int kRequests = 25;  // of each submitter, every one sent twice
constexpr unsigned kSeed = 20240611;

// Reports a few times, looks at the stop signal, and ends in one of all ways.
class BusyRunner final : public JobRunner {
 public:
  absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec&, const Owner&, Values) override {
    return std::make_shared<Inputs>();
  }
  absl::StatusOr<DeviceNeed> Check(const JobSpec&, const InputSpecs&) override {
    return DeviceNeed();
  }
  absl::StatusOr<JobResult> Run(const Job& job, Inputs&, const Placement&, const StopSignal& stop,
                                const std::function<void(const ProgressReport&)>& report) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      EXPECT_TRUE(ran_.insert(job.name).second) << job.name << " ran twice";
    }
    const size_t kind = std::hash<std::string>()(job.name) % 8;
    for (int64_t i = 1; i <= 10; ++i) {
      if (stop.requested()) return ResultWith(StopCause::kCancelled);
      ProgressReport progress;
      progress.iteration = i;
      report(progress);
      std::this_thread::yield();
    }
    if (kind == 0) return absl::InternalError("bad luck");
    if (kind == 1) throw std::runtime_error("worse luck");
    return ResultWith(StopCause::kIterations);
  }
  RunMark Saved(const std::string&) const override { return {}; }
  void ReleaseInputs(const JobSpec&) override {}
  void Discard(const Job& job) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_TRUE(discarded_.insert(job.name).second) << job.name << " discarded twice";
  }
  std::set<std::string> ran() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ran_;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> ran_;
  std::set<std::string> discarded_;
};

// Legal sequences of states for who saw the job from its start.
bool Legal(const std::vector<JobState>& states) {
  for (size_t i = 1; i < states.size(); ++i) {
    if (states[i] <= states[i - 1] || IsTerminal(states[i - 1])) return false;
  }
  return !states.empty() && IsTerminal(states.back());
}

class Stress {
 public:
  Stress() {
    JobManagerOptions options;
    options.workers = 4;
    options.clock = &clock_;
    manager_ = std::make_unique<JobManager>(options, &store_, &runner_, &listener_);
  }

  void Submitter(unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kRequests; ++i) {
      JobSpec spec;
      spec.priority = static_cast<int>(random() % 5);
      if (random() % 4 == 0) spec.deadline = absl::Milliseconds(1 + random() % 20);
      const std::string request = std::to_string(seed) + "-" + std::to_string(i);
      const auto job = manager_->Submit(spec, request, {"body"}, {}, false);
      ASSERT_THAT(job, IsOk());
      auto watcher = std::make_shared<RecordingWatcher>();
      ASSERT_THAT(watcher->Watch(*manager_, job->name), IsOk());
      const auto again = manager_->Submit(spec, request, {"body"}, {}, false);
      ASSERT_THAT(again, IsOk());
      EXPECT_EQ(again->name, job->name);
      if (random() % 3 == 0) {
        EXPECT_THAT(manager_->Cancel(job->name), IsOk());
      }
      Glance(job->name);
      std::lock_guard<std::mutex> lock(mutex_);
      watchers_[job->name] = watcher;
    }
  }

  // A watcher that leaves at once, whatever happens meanwhile.
  void Glance(const std::string& name) {
    auto watcher = std::make_shared<RecordingWatcher>();
    ASSERT_THAT(watcher->Watch(*manager_, name), IsOk());
  }

  void Canceller() {
    std::mt19937 random(kSeed);
    while (!done_) {
      clock_.Advance(absl::Milliseconds(1));
      const auto page = manager_->List({{JobState::kQueued, JobState::kRunning}, {}}, 10, "");
      ASSERT_THAT(page, IsOk());
      for (const Job& job : page->jobs) {
        if (random() % 16 == 0) {
          EXPECT_THAT(manager_->Cancel(job.name), IsOk());
        }
      }
      EXPECT_LE(manager_->running(), 4);
    }
  }

  void Run() {
    std::thread canceller([this] { Canceller(); });
    std::vector<std::thread> submitters;
    for (unsigned i = 0; i < kSubmitters; ++i) {
      submitters.emplace_back([this, i] { Submitter(kSeed + i); });
    }
    for (std::thread& thread : submitters) thread.join();
    for (auto& [name, watcher] : watchers_) watcher->WaitForEnd();
    done_ = true;
    canceller.join();
    manager_->Drain(absl::ZeroDuration());
    Check();
  }

  void Check() {
    EXPECT_EQ(watchers_.size(), static_cast<size_t>(kSubmitters * kRequests));
    std::map<std::string, std::vector<std::string>> heard;
    for (const std::string& call : listener_.calls()) {
      const size_t space = call.find(' ');
      heard[call.substr(space + 1)].push_back(call.substr(0, space));
    }
    EXPECT_EQ(heard.size(), watchers_.size()) << "a job was lost or made twice";
    const std::set<std::string> ran = runner_.ran();
    for (auto& [name, watcher] : watchers_) {
      EXPECT_TRUE(Legal(watcher->states())) << name;
      const auto stored = store_.Get(name);
      ASSERT_THAT(stored, IsOk());
      EXPECT_EQ(stored->state, watcher->seen().back().job.state);
      EXPECT_EQ(stored->revision, watcher->seen().back().job.revision);
      const std::vector<std::string> expected =
          ran.contains(name) ? std::vector<std::string>{"accepted", "started", "ended"}
                             : std::vector<std::string>{"accepted", "ended"};
      EXPECT_EQ(heard[name], expected) << name;
    }
    clock_.Advance(absl::Hours(24));
    std::thread first([this] { manager_->CollectGarbage(); });
    std::thread second([this] { manager_->CollectGarbage(); });
    first.join();
    second.join();
    EXPECT_TRUE(store_.CountByState()->empty());
    EXPECT_TRUE(listener_.errors().empty());
  }

 private:
  FakeClock clock_;
  FaultyStore store_;
  BusyRunner runner_;
  RecordingListener listener_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<RecordingWatcher>> watchers_;
  std::atomic<bool> done_ = false;
  std::unique_ptr<JobManager> manager_;
};

TEST(JobManagerStressTest, NoJobAndNoStateChangeIsLostOrToldTwice) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Stress().Run();
}

}  // namespace
}  // namespace sparsefw::server
