#include "server/rpc/calls/job_feed.h"

#include "gtest/gtest.h"

namespace sparsefw::server {
namespace {

Job At(int64_t revision, JobState state) {
  Job job;
  job.name = "jobs/1";
  job.revision = revision;
  job.state = state;
  job.create_time = absl::UnixEpoch();
  return job;
}

TEST(JobFeedTest, KeepsEveryStateChangeAndTheLatestProgress) {
  int woken = 0;
  JobFeed feed([&woken] { ++woken; });
  feed.OnJob(JobWatcher::Event::kSnapshot, At(1, JobState::kQueued));
  feed.OnJob(JobWatcher::Event::kStateChange, At(2, JobState::kRunning));
  for (int64_t i = 3; i < 1000; ++i) {
    feed.OnJob(JobWatcher::Event::kProgress, At(i, JobState::kRunning));
  }
  EXPECT_EQ(woken, 999);
  EXPECT_EQ(feed.Next()->kind(), v1::JobEvent::SNAPSHOT);
  EXPECT_EQ(feed.Next()->kind(), v1::JobEvent::STATE_CHANGE);
  const std::optional<v1::JobEvent> progress = feed.Next();
  EXPECT_EQ(progress->kind(), v1::JobEvent::PROGRESS);
  EXPECT_EQ(progress->job().revision(), 999);
  EXPECT_FALSE(feed.Next().has_value());
  EXPECT_FALSE(feed.ended());
}

TEST(JobFeedTest, EndsOnceTheEndHasBeenHandedOut) {
  JobFeed feed([] {});
  feed.OnJob(JobWatcher::Event::kProgress, At(3, JobState::kRunning));
  feed.OnJob(JobWatcher::Event::kStateChange, At(4, JobState::kSucceeded));
  EXPECT_FALSE(feed.ended());
  EXPECT_EQ(feed.latest().revision, 4);
  EXPECT_EQ(feed.Next()->job().state(), v1::SUCCEEDED) << "older progress is dropped";
  EXPECT_TRUE(feed.ended());
}

}  // namespace
}  // namespace sparsefw::server
