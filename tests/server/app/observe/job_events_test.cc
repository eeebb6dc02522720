#include "server/app/observe/job_events.h"

#include <string>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/metrics/prometheus_metrics.h"

namespace sparsefw::server {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Lines(const Job& job) {
  const auto metrics = NewPrometheusMetrics({"1", "c", "Release"}, {}, absl::UnixEpoch());
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
  const auto metrics = NewPrometheusMetrics({"1", "c", "Release"}, {}, absl::UnixEpoch());
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
