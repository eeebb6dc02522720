// Grams that stay on devices while jobs need them.
#include <string>
#include <thread>

#include "absl/strings/str_split.h"
#include "sparsefw/reason.h"
#include "tests/server/jobs/fake_gram.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr int64_t kGramBytes = 4;

// Two devices of 10 bytes. A job's Gram is that of its spec, and what it needs
// beside it a label.
class GramsTest : public JobManagerTest {
 protected:
  GramsTest() {
    runner_.device_need_of = [](const JobSpec& spec) {
      DeviceNeed need;
      need.devices = absl::StrSplit(spec.device, ',');
      need.bytes = std::stoll(spec.labels.at("bytes"));
      need.gram = spec.gram;
      need.gram_bytes = spec.gram.empty() ? 0 : kGramBytes;
      return need;
    };
    runner_.upload_gram = [this](const std::string& device) -> absl::StatusOr<SharedGram::Gram> {
      if (absl::Status fault = upload_fault(device); !fault.ok()) return fault;
      return memory_.Upload(device, kGramBytes);
    };
    Open(2);
  }
  ~GramsTest() override { manager_.reset(); }

  void Open(int streams) {
    JobManagerOptions options;
    options.devices = {{"cuda:0", 10, streams}, {"cuda:1", 10, streams}};
    Restart(options);
  }
  static JobSpec SpecOf(const std::string& gram, int64_t bytes,
                        const std::string& devices = "cuda:0,cuda:1") {
    JobSpec spec;
    spec.gram = gram;
    spec.device = devices;
    spec.labels["bytes"] = std::to_string(bytes);
    return spec;
  }
  // The n-th run is of this job, there.
  void ExpectRuns(size_t n, const Job& job, const std::string& device) {
    EXPECT_EQ(runner_.WaitForRun(n).name, job.name);
    EXPECT_EQ(runner_.WaitForDevice(n), device);
  }
  Job End(const Job& job) { return RunTo(job.name, ResultWith(StopCause::kIterations)); }
  // A job is told to be over before its device is.
  void AwaitIdle(size_t device) {
    while (manager_->devices()[device].jobs > 0 || manager_->devices()[device].gram_bytes > 0) {
      std::this_thread::yield();
    }
  }
  // On cuda:0, of one stream: "g" is there and nobody uses it, as `waiting` names it
  // and waits behind `running`.
  struct Idle {
    Job running;
    Job waiting;
  };
  Idle MakeIdle(int64_t bytes, JobSpec waiting_spec) {
    Open(1);
    const Job first = Submit(SpecOf("g", 1, "cuda:0"));
    ExpectRuns(0, first, "cuda:0");
    JobSpec next = SpecOf("", bytes, "cuda:0");
    next.priority = 1;
    Idle idle;
    idle.running = Submit(next);
    idle.waiting = Submit(waiting_spec);
    End(first);
    ExpectRuns(1, idle.running, "cuda:0");
    return idle;
  }

  FakeMemory memory_{10};
  std::function<absl::Status(const std::string& device)> upload_fault = [](const std::string&) {
    return absl::OkStatus();
  };
};

TEST_F(GramsTest, JobsThatShareOneRunWhereItIsAndUploadItOnce) {
  const Job q = Submit(SpecOf("g", 2));
  ExpectRuns(0, q, "cuda:0");
  const Job k = Submit(SpecOf("g", 2));
  ExpectRuns(1, k, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  EXPECT_EQ(manager_->devices()[0].reserved_bytes, 8);
  const Job v = Submit(SpecOf("g", 2));
  ExpectRuns(2, v, "cuda:1");  // the first has no stream left
  EXPECT_EQ(memory_.uploads("cuda:1"), 1);
  End(q);
  End(k);
  const auto usage = manager_->devices();
  EXPECT_EQ(usage[0].gram_uploads, 1);
  EXPECT_EQ(usage[0].gram_reuses, 1);
  EXPECT_EQ(usage[1].gram_uploads, 1);
  EXPECT_EQ(usage[1].gram_reuses, 0);
  End(v);
  AwaitIdle(0);
  AwaitIdle(1);
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  EXPECT_EQ(memory_.taken("cuda:1"), 0);
}

TEST_F(GramsTest, StaysForJobsThatWaitAndGoesWithTheLast) {
  Open(1);
  const Job q = Submit(SpecOf("g", 2, "cuda:0"));
  ExpectRuns(0, q, "cuda:0");
  const Job k = Submit(SpecOf("g", 3, "cuda:0"));
  const Job v = Submit(SpecOf("g", 6, "cuda:0"));
  End(q);
  ExpectRuns(1, k, "cuda:0");
  End(k);
  ExpectRuns(2, v, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  EXPECT_EQ(memory_.taken("cuda:0"), kGramBytes);
  End(v);
  AwaitIdle(0);
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  const Job later = Submit(SpecOf("g", 2, "cuda:0"));
  ExpectRuns(3, later, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 2);
  End(later);
}

TEST_F(GramsTest, IsFreedBeforeTheJobThatNeedsItsRoomBegins) {
  const Idle idle = MakeIdle(10, SpecOf("g", 1, "cuda:0"));
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  EXPECT_EQ(manager_->devices()[0].gram_bytes, 0);
  End(idle.running);
  ExpectRuns(2, idle.waiting, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 2);
  End(idle.waiting);
}

TEST_F(GramsTest, StaysBesideAJobThatLeavesRoom) {
  const Idle idle = MakeIdle(6, SpecOf("g", 1, "cuda:0"));
  EXPECT_EQ(memory_.taken("cuda:0"), kGramBytes);
  EXPECT_EQ(manager_->devices()[0].reserved_bytes, 6);
  EXPECT_EQ(manager_->devices()[0].gram_bytes, kGramBytes);
  End(idle.running);
  ExpectRuns(2, idle.waiting, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  End(idle.waiting);
}

TEST_F(GramsTest, GoesWhenTheJobThatWaitedForItIsCancelled) {
  const Idle idle = MakeIdle(6, SpecOf("g", 1, "cuda:0"));
  EXPECT_THAT(manager_->Cancel(idle.waiting.name), IsOk());
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  EXPECT_EQ(manager_->devices()[0].gram_bytes, 0);
  End(idle.running);
}

TEST_F(GramsTest, GoesWhenTheDeadlineOfTheJobThatWaitedForItPasses) {
  JobSpec spec = SpecOf("g", 1, "cuda:0");
  spec.deadline = absl::Seconds(5);
  const Idle idle = MakeIdle(6, spec);
  const auto watch = Watch(idle.waiting.name);
  clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(watch->WaitForEnd().state, JobState::kFailed);
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  EXPECT_EQ(manager_->devices()[0].gram_bytes, 0);
  End(idle.running);
}

TEST_F(GramsTest, GoesInADrain) {
  MakeIdle(6, SpecOf("g", 1, "cuda:0"));
  runner_.obey_stop = true;
  manager_->Drain(absl::ZeroDuration());
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
}

TEST_F(GramsTest, BothItAndTheJobMustFit) {
  EXPECT_THAT(manager_->Submit(SpecOf("g", 7), "", {""}, {}, false),
              StatusIs(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                       "needs about 11 bytes of device memory"));
}

TEST_F(GramsTest, AJobWhoseDeviceIsLostUploadsItOnTheNext) {
  const absl::Status lost = WithReason(absl::InternalError("an illegal address"), "DEVICE_LOST");
  const Job q = Submit(SpecOf("g", 2));
  ExpectRuns(0, q, "cuda:0");
  const Job k = Submit(SpecOf("g", 2));
  ExpectRuns(1, k, "cuda:0");
  runner_.Finish(q.name, lost);
  ExpectRuns(2, q, "cuda:1");
  EXPECT_EQ(memory_.taken("cuda:0"), kGramBytes) << "of the job that does not know yet";
  runner_.Finish(k.name, lost);
  ExpectRuns(3, k, "cuda:1");
  EXPECT_EQ(memory_.taken("cuda:0"), 0);
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  EXPECT_EQ(memory_.uploads("cuda:1"), 1);
  EXPECT_EQ(manager_->devices()[0].gram_bytes, 0);
  End(q);
  End(k);
}

TEST_F(GramsTest, ADeviceThatIsLostInTheUploadIsLeft) {
  upload_fault = [](const std::string& device) {
    return device == "cuda:0" ? WithReason(absl::InternalError("illegal"), "DEVICE_LOST")
                              : absl::OkStatus();
  };
  const Job q = Submit(SpecOf("g", 2));
  ExpectRuns(0, q, "cuda:1");
  EXPECT_TRUE(manager_->devices()[0].lost);
  EXPECT_EQ(memory_.uploads("cuda:1"), 1);
  End(q);
}

TEST_F(GramsTest, AnUploadThatFailsIsItsJobsAndTheNextOneTries) {
  Open(1);
  const Job first = Submit(SpecOf("", 1, "cuda:0"));
  ExpectRuns(0, first, "cuda:0");
  int uploads = 0;
  upload_fault = [&uploads](const std::string&) {
    return ++uploads == 1 ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  };
  const Job q = Submit(SpecOf("g", 2, "cuda:0"));
  const Job k = Submit(SpecOf("g", 2, "cuda:0"));
  const auto watch = Watch(q.name);
  End(first);
  EXPECT_EQ(watch->WaitForEnd().error, absl::ResourceExhaustedError("no memory"));
  ExpectRuns(1, k, "cuda:0");
  EXPECT_EQ(memory_.uploads("cuda:0"), 1);
  End(k);
}

}  // namespace
}  // namespace sparsefw::server
