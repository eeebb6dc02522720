#include "server/app/observe/events.h"

#include <string>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/metrics.h"
#include "sparsefw/v1/prune_service.pb.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string Logged(const absl::Status& status, const CallSubject& subject,
                   const std::string& tenant = "alice", const char* level = "debug") {
  ::testing::internal::CaptureStderr();
  Logger logger(level, "text");
  LogRpc({"PruneService/GetJob", status, absl::Milliseconds(2), "ipv4:127.0.0.1:9", tenant, subject,
          "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
         &logger);
  return ::testing::internal::GetCapturedStderr();
}

TEST(RpcLogTest, NamesWhatTheCallIsAbout) {
  const std::string line = Logged(absl::NotFoundError("no such job"), {"request", "jobs/1"});
  EXPECT_THAT(line, HasSubstr(" info rpc method=PruneService/GetJob code=NOT_FOUND ms=2 "));
  EXPECT_THAT(line, HasSubstr(" tenant=alice job=jobs/1 request_id=request traceparent=00-4bf9"));
  EXPECT_THAT(line, HasSubstr(" message=\"no such job\""));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "uploads/2"}), HasSubstr(" upload=uploads/2 "));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "tensors/3"}), HasSubstr(" tensor=tensors/3 "));
  EXPECT_THAT(Logged(absl::OkStatus(), {"", "x\ny"}), HasSubstr(" name=\"x\\ny\" "));
}

TEST(RpcLogTest, LeavesOutWhatIsNotKnown) {
  const std::string line = Logged(absl::OkStatus(), {}, "");
  for (const char* key : {"tenant=", "job=", "name=", "request_id=", "message="}) {
    EXPECT_THAT(line, Not(HasSubstr(key)));
  }
}

TEST(RpcLogTest, OnlyErrorsAtLevelInfo) {
  EXPECT_THAT(Logged(absl::OkStatus(), {}, "alice", "info"), IsEmpty());
  EXPECT_THAT(Logged(absl::CancelledError(""), {}, "alice", "info"), IsEmpty());
  EXPECT_THAT(Logged(absl::InternalError("x"), {}, "alice", "info"), Not(IsEmpty()));
}

TEST(CallSubjectTest, OfMessages) {
  v1::CreateJobRequest create;
  create.set_request_id("r");
  EXPECT_EQ(SubjectOf(create).request_id, "r");
  EXPECT_EQ(SubjectOf(create).resource, "");
  v1::GetTensorRequest get;
  get.set_name("tensors/1");
  EXPECT_EQ(SubjectOf(get).resource, "tensors/1");
  v1::CreateUploadResponse created;
  created.mutable_upload()->set_name("uploads/1");
  EXPECT_EQ(ResourceOf(created), "uploads/1");
  created.mutable_tensor()->set_name("tensors/2");
  EXPECT_EQ(ResourceOf(created), "tensors/2");
  EXPECT_EQ(ResourceOf(v1::ServerInfo()), "");
}

std::vector<std::string> Lines(const Job& job) {
  const auto metrics = std::make_unique<Metrics>(BuildInfo{"1", "c", "Release"},
                                                 std::vector<DeviceInfo>(), absl::UnixEpoch());
  ::testing::internal::CaptureStderr();
  Logger logger("debug", "text");
  LiveJobs live;
  JobEvents events(metrics.get(), &logger, &live);
  events.OnAccepted(job);
  events.OnRecovered(job);
  events.OnStarted(job);
  events.OnInterrupted(job);
  events.OnEnded(job);
  Job failed = job;
  failed.state = JobState::kFailed;
  failed.error = absl::InternalError("x");
  events.OnEnded(failed);
  events.OnDeviceLost("cuda:0", job, absl::InternalError("x"));
  events.OnBackgroundError(job, absl::InternalError("x"));
  return absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
}

TEST(JobEventsTest, EveryLineLeadsToTheCallThatSubmittedTheJob) {
  Job job;
  job.name = "jobs/1";
  job.owner.tenant = "alice";
  job.request_id = "my request";
  job.spec.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  job.state = JobState::kSucceeded;
  const std::vector<std::string> lines = Lines(job);
  EXPECT_THAT(lines, SizeIs(8));
  EXPECT_THAT(lines, Each(AllOf(HasSubstr(" job=jobs/1 tenant=alice request_id=\"my request\""),
                                HasSubstr(" traceparent=00-4bf92f3577b34da6"))));
}

TEST(JobEventsTest, TheStatusPageLearnsOfEndsButNotOfInterruptions) {
  const auto metrics = std::make_unique<Metrics>(BuildInfo{"1", "c", "Release"},
                                                 std::vector<DeviceInfo>(), absl::UnixEpoch());
  Logger logger("error", "text");
  LiveJobs live;
  JobEvents events(metrics.get(), &logger, &live);
  Job job;
  for (const char* name : {"jobs/ended", "jobs/interrupted"}) {
    job.name = name;
    events.OnAccepted(job);
    events.OnStarted(job);
  }
  events.OnInterrupted(job);
  job.name = "jobs/ended";
  job.state = JobState::kCancelled;
  events.OnEnded(job);
  const LiveJobs::View view = live.Look(9);
  EXPECT_THAT(view.running, SizeIs(0));
  ASSERT_THAT(view.ended, SizeIs(1));
  EXPECT_EQ(view.ended[0].job.name, "jobs/ended");
}

TEST(JobEventsTest, LeaveOutWhatAJobLacks) {
  Job job;
  job.name = "jobs/1";
  job.state = JobState::kSucceeded;
  EXPECT_THAT(Lines(job), Each(AllOf(HasSubstr(" job=jobs/1 tenant=default"),
                                     Not(HasSubstr("request_id")), Not(HasSubstr("traceparent")))));
}

}  // namespace
}  // namespace sparsefw::server
