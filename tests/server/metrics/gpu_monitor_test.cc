#include "server/metrics/gpu_monitor.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/mutex.h"
#include "tests/server/jobs/fake_clock.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(5);

// Opened once; until then whoever comes waits.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mutex_);
    while (!open_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// A driver: each measurement's temperature is its number. Measurement `hangs_at`
// waits for `answer`; `released` opens when the monitor's thread lets go of it.
class Driver {
 public:
  explicit Driver(int hangs_at = 0) : hangs_at_(hangs_at) {}

  GpuSampler Sampler() {
    return [this, release = std::shared_ptr<void>(nullptr, [this](void*) { released.Open(); })] {
      const int now = ++calls;
      if (now == hangs_at_) {
        hanging.Open();
        answer.Pass();
      }
      GpuSample sample;
      sample.device = "cuda:0";
      sample.temperature_celsius = now;
      return std::vector<GpuSample>{sample};
    };
  }

  std::atomic<int> calls{0};
  Gate hanging;
  Gate answer;
  Gate released;

 private:
  const int hangs_at_;
};

class GpuMonitorTest : public ::testing::Test {
 protected:
  GpuMonitorOptions Options(Driver& driver) {
    GpuMonitorOptions options;
    options.open = [&driver] { return driver.Sampler(); };
    options.on_failure = [](const absl::Status& status) { ADD_FAILURE() << status; };
    options.period = kPeriod;
    options.patience = absl::Minutes(5);  // of a thread that does end
    options.clock = &clock_;
    return options;
  }
  // The temperature of the one device; 0: nothing is known.
  static double Latest(const GpuMonitor& monitor) {
    const std::vector<GpuSample> samples = monitor.Latest();
    return samples.empty() ? 0 : samples[0].temperature_celsius.value_or(-1);
  }

  FakeClock clock_;
};

TEST_F(GpuMonitorTest, MeasuresAtOnceAndAfterEveryPeriod) {
  Driver driver;
  GpuMonitor monitor(Options(driver));
  for (int measured = 1; measured <= 3; ++measured) {
    clock_.AwaitWaiter(clock_.Now() + kPeriod);
    EXPECT_EQ(Latest(monitor), measured);
    EXPECT_EQ(driver.calls, measured);
    clock_.Advance(kPeriod);
  }
}

TEST_F(GpuMonitorTest, NothingIsKnownWhileTheFirstMeasurementHangs) {
  Driver driver(1);
  GpuMonitor monitor(Options(driver));
  driver.hanging.Pass();
  EXPECT_EQ(Latest(monitor), 0);
  driver.answer.Open();
  clock_.AwaitWaiter(clock_.Now() + kPeriod);
  EXPECT_EQ(Latest(monitor), 1);
}

TEST_F(GpuMonitorTest, AMeasurementThatIsTooOldIsForgotten) {
  Driver driver(2);
  GpuMonitor monitor(Options(driver));
  clock_.AwaitWaiter(clock_.Now() + kPeriod);
  clock_.Advance(kPeriod);
  driver.hanging.Pass();
  clock_.Advance(2 * kPeriod + absl::Seconds(1));
  EXPECT_EQ(Latest(monitor), 1) << "three periods and a second old";
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(Latest(monitor), 0);
  driver.answer.Open();
  clock_.AwaitWaiter(clock_.Now() + kPeriod);
  EXPECT_EQ(Latest(monitor), 2) << "the driver is back";
}

TEST_F(GpuMonitorTest, ADriverThatHangsDoesNotHoldUpTheEnd) {
  Driver driver(1);
  {
    GpuMonitorOptions options = Options(driver);
    options.patience = absl::ZeroDuration();
    GpuMonitor monitor(std::move(options));
    driver.hanging.Pass();
  }
  driver.answer.Open();
  driver.released.Pass();  // the thread ends by itself
  EXPECT_EQ(driver.calls, 1) << "and measures no more";
}

TEST_F(GpuMonitorTest, AnEndWaitsForAThreadThatEnds) {
  Driver driver;
  { GpuMonitor monitor(Options(driver)); }
  EXPECT_LE(driver.calls, 1);
  driver.released.Pass();
}

TEST_F(GpuMonitorTest, AFailureIsToldOnce) {
  Driver driver;
  std::vector<std::string> told;
  Gate failed;
  GpuMonitorOptions options = Options(driver);
  options.open = []() -> absl::StatusOr<GpuSampler> { return absl::NotFoundError("no NVML"); };
  options.on_failure = [&](const absl::Status& status) {
    told.emplace_back(status.message());
    failed.Open();
  };
  {
    GpuMonitor monitor(std::move(options));
    failed.Pass();
    clock_.Advance(10 * kPeriod);
    EXPECT_EQ(Latest(monitor), 0);
  }
  EXPECT_EQ(told, std::vector<std::string>{"no NVML"});
}

TEST_F(GpuMonitorTest, NobodyIsToldOfAFailureAfterTheEnd) {
  Driver driver;
  Gate opening;
  Gate answer;
  Gate let_go;
  {
    GpuMonitorOptions options = Options(driver);  // which fails when told
    options.patience = absl::ZeroDuration();
    options.open = [&, release = std::shared_ptr<void>(nullptr, [&](void*) {
                         let_go.Open();
                       })]() -> absl::StatusOr<GpuSampler> {
      opening.Open();
      answer.Pass();
      return absl::NotFoundError("too late");
    };
    GpuMonitor monitor(std::move(options));
    opening.Pass();
  }
  answer.Open();
  let_go.Pass();
}

}  // namespace
}  // namespace sparsefw::server
