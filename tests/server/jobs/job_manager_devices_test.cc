// Jobs on a pool of devices: where they run, who waits, what a lost device does.
#include <string>

#include "absl/strings/str_split.h"
#include "sparsefw/reason.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using ::testing::Contains;
using testing::IsOk;
using testing::StatusIs;

absl::Status Lost() { return WithReason(absl::InternalError("an illegal address"), "DEVICE_LOST"); }

// Two devices of 10 and 8 bytes with two streams each, and one worker. What a
// job needs are its labels.
class DevicesTest : public JobManagerTest {
 protected:
  DevicesTest() {
    runner_.device_need_of = [](const JobSpec& spec) {
      DeviceNeed need;
      if (spec.device.empty()) return need;
      need.devices = absl::StrSplit(spec.device, ',');
      need.bytes = std::stoll(spec.labels.at("bytes"));
      return need;
    };
    JobManagerOptions options;
    options.devices = {{"cuda:0", 10, 2}, {"cuda:1", 8, 2}};
    Restart(options);
  }
  static JobSpec SpecOf(const std::string& devices, int64_t bytes) {
    JobSpec spec;
    spec.device = devices;
    spec.labels["bytes"] = std::to_string(bytes);
    return spec;
  }
  Job SubmitTo(const std::string& devices, int64_t bytes) { return Submit(SpecOf(devices, bytes)); }
  // The n-th run is of this job, there.
  void ExpectRuns(size_t n, const Job& job, const std::string& device) {
    EXPECT_EQ(runner_.WaitForRun(n).name, job.name);
    EXPECT_EQ(runner_.WaitForDevice(n), device);
  }
  // A job that has lost its device waits for room on the other, which `there` takes. Runs: 2.
  struct Waiting {
    Job there;
    Job job;
  };
  Waiting OneWaitsForRoom() {
    const Job there = SubmitTo("cuda:1", 6);
    ExpectRuns(0, there, "cuda:1");
    const Job job = SubmitTo("cuda:0,cuda:1", 5);
    ExpectRuns(1, job, "cuda:0");
    runner_.Finish(job.name, Lost());
    Await([&] { return manager_->devices()[0].lost; });
    EXPECT_EQ(Get(job.name).state, JobState::kRunning);
    return {there, job};
  }
  Job End(const Job& job) { return RunTo(job.name, ResultWith(StopCause::kIterations)); }
};

TEST_F(DevicesTest, JobsGoWhereThereIsMostRoomAndBesideThoseOfTheCpu) {
  const Job first = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(0, first, "cuda:0");
  const Job second = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(1, second, "cuda:1");
  const Job on_cpu = SubmitTo("", 0);
  ExpectRuns(2, on_cpu, "");
  EXPECT_EQ(manager_->devices()[0].reserved_bytes, 5);
  EXPECT_EQ(manager_->devices()[1].jobs, 1);
  SubmitTo("", 0);
  EXPECT_EQ(manager_->queued(), 1) << "one worker";
  runner_.obey_stop = true;
}

TEST_F(DevicesTest, OneThatDoesNotFitWaitsAndOthersForItsDeviceBehindIt) {
  const Job first = SubmitTo("cuda:0", 6);
  ExpectRuns(0, first, "cuda:0");
  const Job big = SubmitTo("cuda:0", 10);
  const Job small = SubmitTo("cuda:0", 1);
  const Job elsewhere = SubmitTo("cuda:1", 1);
  ExpectRuns(1, elsewhere, "cuda:1");
  EXPECT_EQ(manager_->queued(), 2);
  End(first);
  ExpectRuns(2, big, "cuda:0");
  EXPECT_EQ(manager_->queued(), 1);
  End(big);
  ExpectRuns(3, small, "cuda:0");
}

TEST_F(DevicesTest, WhatCanNeverFitIsRefused) {
  for (const bool validate_only : {false, true}) {
    const auto refused = manager_->Submit(SpecOf("cuda:0,cuda:1", 11), "", {""}, {}, validate_only);
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                                  "11 bytes of device memory"));
  }
  EXPECT_EQ(manager_->queued(), 0);
}

TEST_F(DevicesTest, AJobWhoseDeviceIsLostRunsOnceMoreElsewhere) {
  const Job job = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(0, job, "cuda:0");
  runner_.Finish(job.name, Lost());
  ExpectRuns(1, job, "cuda:1");
  EXPECT_EQ(Get(job.name).state, JobState::kRunning);
  EXPECT_THAT(listener_.calls(), Contains("lost cuda:0 " + job.name));
  EXPECT_TRUE(manager_->devices()[0].lost);
  EXPECT_FALSE(manager_->devices()[1].lost);
  EXPECT_EQ(End(job).state, JobState::kSucceeded);
  const Job next = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(2, next, "cuda:1");
  End(next);
}

TEST_F(DevicesTest, ItWaitsForRoomThere) {
  const auto [there, job] = OneWaitsForRoom();
  End(there);
  ExpectRuns(2, job, "cuda:1");
  End(job);
}

// It waits with the workers that wait for a job: news of one must reach them all.
TEST_F(DevicesTest, OthersStartWhileItWaits) {
  const auto [there, job] = OneWaitsForRoom();
  for (size_t n = 2; n < 20; ++n) {
    const Job on_cpu = SubmitTo("", 0);
    ExpectRuns(n, on_cpu, "");
    End(on_cpu);
  }
  End(there);
  ExpectRuns(20, job, "cuda:1");
  End(job);
}

TEST_F(DevicesTest, ASecondLossFailsIt) {
  const Job job = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(0, job, "cuda:0");
  runner_.Finish(job.name, Lost());
  ExpectRuns(1, job, "cuda:1");
  const Job ended = RunTo(job.name, Lost());
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ReasonOf(ended.error), "DEVICE_LOST");
  EXPECT_EQ(runner_.runs(), 2U);
}

TEST_F(DevicesTest, WithoutAnotherDeviceItFailsAndSoDoWhatWaitsForIt) {
  const Job job = SubmitTo("cuda:0", 9);
  ExpectRuns(0, job, "cuda:0");
  const Job behind = SubmitTo("cuda:0", 9);
  const Job big = SubmitTo("cuda:0,cuda:1", 9);
  const auto behind_watch = Watch(behind.name);
  const auto big_watch = Watch(big.name);
  EXPECT_EQ(ReasonOf(RunTo(job.name, Lost()).error), "DEVICE_LOST");
  EXPECT_EQ(ReasonOf(behind_watch->WaitForEnd().error), "DEVICE_UNAVAILABLE");
  EXPECT_EQ(ReasonOf(big_watch->WaitForEnd().error), "DEVICE_MEMORY");
  EXPECT_THAT(manager_->Submit(SpecOf("cuda:0", 1), "", {""}, {}, false),
              StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE", "lost"));
  EXPECT_EQ(runner_.runs(), 1U) << "never on the CPU";
}

TEST_F(DevicesTest, WhileItWaitsItCanBeCancelledAndItsDeadlineCanPass) {
  const Job there = SubmitTo("cuda:1", 8);
  ExpectRuns(0, there, "cuda:1");
  const Job cancelled = SubmitTo("cuda:0,cuda:1", 5);
  ExpectRuns(1, cancelled, "cuda:0");
  JobSpec spec = SpecOf("cuda:0,cuda:1", 5);
  spec.deadline = absl::Seconds(5);
  const Job late = Submit(spec);
  ExpectRuns(2, late, "cuda:0");
  const auto cancelled_watch = Watch(cancelled.name);
  const auto late_watch = Watch(late.name);
  const absl::Time deadline = clock_.Now() + absl::Seconds(5);
  runner_.Finish(cancelled.name, Lost());
  runner_.Finish(late.name, Lost());
  clock_.AwaitWaiter(deadline);
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(ReasonOf(late_watch->WaitForEnd().error), "DEADLINE_EXCEEDED");
  EXPECT_THAT(manager_->Cancel(cancelled.name), IsOk());
  EXPECT_EQ(cancelled_watch->WaitForEnd().state, JobState::kCancelled);
  End(there);
}

}  // namespace
}  // namespace sparsefw::server
