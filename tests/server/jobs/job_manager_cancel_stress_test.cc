// Cancelling against everything else that may happen to a job at the same moment: its
// acceptance, start, progress, deadline, end, return to the queue and the drain; over
// several processes on one durable store. Meant for ThreadSanitizer.
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;

constexpr int kProcesses = 6;
constexpr int kSubmitters = 3;
constexpr int kCancellers = 3;
constexpr int kJobs = 60;  // of each submitter in each process
constexpr unsigned kSeed = 20261122;

// Reports and looks at the signal; short runs, long ones, and some that never end by
// themselves.
class SteppingRunner final : public JobRunner {
 public:
  absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec&, const Owner&, Values) override {
    auto inputs = std::make_shared<Inputs>();
    inputs->cost = 1e6;
    return inputs;
  }
  absl::StatusOr<DeviceNeed> Check(const JobSpec&, const InputSpecs&) override {
    return DeviceNeed();
  }
  absl::StatusOr<JobResult> Run(const Job& job, Inputs&, const Placement&, const StopSignal& stop,
                                const std::function<void(const ProgressReport&)>& report) override {
    const size_t kind = std::hash<std::string>()(job.name) % 4;
    const int64_t steps = kind == 3 ? int64_t{1} << 40 : static_cast<int64_t>(kind) * 20;
    for (int64_t i = 1; i <= steps; ++i) {
      if (stop.requested()) return ResultWith(StopCause::kCancelled);
      ProgressReport progress;
      progress.iteration = i;
      if (i % 8 == 0) report(progress);
      std::this_thread::yield();
    }
    return ResultWith(StopCause::kIterations);
  }
  RunMark Saved(const std::string&) const override { return {}; }
  void ReleaseInputs(const JobSpec&) override {}
  void Discard(const Job&) override {}
};

class CancelStress {
 public:
  CancelStress() { store_.is_durable = true; }

  // One life of a server: it recovers, works, and is drained while clients go on.
  void Live(unsigned seed) {
    JobManagerOptions options;
    options.workers = 3;
    options.clock = &clock_;
    manager_ = std::make_unique<JobManager>(options, &store_, &runner_, &listener_);
    ASSERT_THAT(manager_->Recover(), IsOk());
    draining_ = false;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kSubmitters; ++i) {
      threads.emplace_back([this, seed, i] { Submit(seed * 100 + i); });
    }
    for (unsigned i = 0; i < kCancellers; ++i) {
      threads.emplace_back([this, seed, i] { Cancel(seed * 100 + 50 + i); });
    }
    for (int i = 0; i < kSubmitters; ++i) threads[static_cast<size_t>(i)].join();
    manager_->Drain(absl::ZeroDuration());
    draining_ = true;
    for (size_t i = kSubmitters; i < threads.size(); ++i) threads[i].join();
    manager_.reset();
  }

  void Submit(unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kJobs; ++i) {
      JobSpec spec;
      spec.ends_with_stream = random() % 8 == 0;
      if (random() % 4 == 0) spec.deadline = absl::Milliseconds(1 + random() % 20);
      const auto job = manager_->Submit(spec, "", {"body"}, {}, false);
      ASSERT_THAT(job, IsOk());
      clock_.Advance(absl::Milliseconds(1));
      {
        std::lock_guard<std::mutex> lock(mutex_);
        names_.push_back(job->name);
      }
      // However little the others come to do on a busy machine.
      if (i % 2 == 0) CancelOne(random);
    }
  }

  // Mostly of young jobs, some twice and some from two threads at once.
  void Cancel(unsigned seed) {
    std::mt19937 random(seed);
    while (!draining_) {
      if (random() % 3 == 0) {
        std::this_thread::yield();
      } else {
        CancelOne(random);
      }
    }
  }

  void CancelOne(std::mt19937& random) {
    std::string name;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (names_.empty()) return;
      name = names_[names_.size() - 1 - random() % std::min<size_t>(names_.size(), 12)];
      cancelled_.insert(name);
    }
    ASSERT_THAT(manager_->Cancel(name), IsOk());
    const auto stored = store_.Get(name);
    ASSERT_THAT(stored, IsOk());
    // The promise: whatever the process does next, the job does not run again.
    EXPECT_TRUE(IsTerminal(stored->state) || stored->cancel_requested)
        << name << " is " << NameOf(stored->state);
  }

  void Run() {
    for (unsigned i = 0; i < kProcesses; ++i) Live(kSeed + i);
    // The last process ends what is left.
    JobManagerOptions options;
    options.clock = &clock_;
    manager_ = std::make_unique<JobManager>(options, &store_, &runner_, &listener_);
    ASSERT_THAT(manager_->Recover(), IsOk());
    for (const std::string& name : names_) {
      ASSERT_THAT(manager_->Cancel(name), IsOk());
      auto watcher = std::make_shared<RecordingWatcher>();
      ASSERT_THAT(watcher->Watch(*manager_, name), IsOk());
      watcher->WaitForEnd();
    }
    manager_.reset();
    Check();
  }

  void Check() {
    std::map<std::string, int> ended;
    std::map<std::string, std::string> last;
    for (const std::string& call : listener_.calls()) {
      const size_t space = call.find(' ');
      const std::string name = call.substr(space + 1);
      last[name] = call.substr(0, space);
      if (last[name] == "ended") ++ended[name];
    }
    for (const std::string& name : names_) {
      EXPECT_EQ(ended[name], 1) << name;
      EXPECT_EQ(last[name], "ended") << name;
      const auto job = store_.Get(name);
      ASSERT_THAT(job, IsOk());
      EXPECT_TRUE(IsTerminal(job->state)) << name;
      int ends = 0;
      int64_t revision = 0;
      for (const StateChange& change : job->states) {
        ends += IsTerminal(change.state) ? 1 : 0;
        EXPECT_GT(change.revision, revision) << name;
        revision = change.revision;
      }
      EXPECT_EQ(ends, 1) << name;
    }
    EXPECT_EQ(names_.size(), static_cast<size_t>(kProcesses * kSubmitters * kJobs));
    EXPECT_GT(cancelled_.size(), names_.size() / 10) << "hardly anything was raced";
    EXPECT_TRUE(listener_.errors().empty());
  }

 private:
  FakeClock clock_;
  FaultyStore store_;
  SteppingRunner runner_;
  RecordingListener listener_;
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::set<std::string> cancelled_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<JobManager> manager_;
};

TEST(JobManagerCancelStressTest, ACancelledJobEndsOnceAndNeverRunsAgain) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  CancelStress().Run();
}

}  // namespace
}  // namespace sparsefw::server
