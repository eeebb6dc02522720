// WatchJob: nothing is missed, nothing piles up.
#include <thread>

#include "gtest/gtest.h"
#include "tests/server/app/test_server.h"

namespace sparsefw::server {
namespace {

class WatchRpcTest : public testing::Test {
 protected:
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::JobEvent>> reader;
  };
  std::unique_ptr<Watch> Start(const std::string& name, int64_t heartbeat_ms = 0,
                               int64_t after_revision = 0) {
    auto watch = std::make_unique<Watch>();
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_after_revision(after_revision);
    if (heartbeat_ms != 0) {
      request.mutable_heartbeat_interval()->set_seconds(heartbeat_ms / 1000);
      request.mutable_heartbeat_interval()->set_nanos(
          static_cast<int32_t>(heartbeat_ms % 1000 * 1'000'000));
    }
    watch->reader = server_.jobs->WatchJob(&watch->context, request);
    return watch;
  }
  grpc::Status Error(const std::string& name, int64_t heartbeat_ms, int64_t after_revision) {
    const auto watch = Start(name, heartbeat_ms, after_revision);
    v1::JobEvent event;
    EXPECT_FALSE(watch->reader->Read(&event));
    return watch->reader->Finish();
  }

  TestServer server_;
};

TEST_F(WatchRpcTest, SnapshotThenEveryStateChangeThenOk) {
  const v1::Job blocker = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(blocker.name());
  const v1::Job job = server_.MustCreate(server_.Layer(32, 32, 300));
  const auto watch = Start(job.name());
  v1::JobEvent event;
  ASSERT_TRUE(watch->reader->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::KIND_SNAPSHOT);
  EXPECT_EQ(event.job().state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(server_.Cancel(blocker.name()).ok());

  std::vector<v1::JobState> states;
  int64_t revision = event.job().revision();
  while (watch->reader->Read(&event)) {
    EXPECT_NE(event.kind(), v1::JobEvent::KIND_SNAPSHOT);
    EXPECT_GT(event.job().revision(), revision) << event.ShortDebugString();
    revision = event.job().revision();
    if (event.kind() == v1::JobEvent::KIND_STATE_CHANGE) states.push_back(event.job().state());
    if (event.kind() == v1::JobEvent::KIND_PROGRESS) {
      EXPECT_EQ(event.job().progress().iterations_total(), 300);
    }
  }
  EXPECT_TRUE(watch->reader->Finish().ok());
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED}));
}

TEST_F(WatchRpcTest, AnEndedJobIsOneSnapshot) {
  const v1::Job job = server_.WaitForEnd(server_.MustCreate(server_.Layer(8, 8, 5)).name());
  for (const int64_t after : {int64_t{0}, job.revision()}) {
    const auto watch = Start(job.name(), 0, after);
    v1::JobEvent event;
    ASSERT_TRUE(watch->reader->Read(&event));
    EXPECT_EQ(event.kind(), v1::JobEvent::KIND_SNAPSHOT);
    EXPECT_EQ(event.job().revision(), job.revision());
    EXPECT_FALSE(watch->reader->Read(&event));
    EXPECT_TRUE(watch->reader->Finish().ok());
  }
}

TEST_F(WatchRpcTest, AWatcherThatComesBackMissesNothing) {
  const v1::Job job = server_.MustCreate(server_.Endless());
  int64_t revision = 0;
  {
    const auto watch = Start(job.name());
    v1::JobEvent event;
    ASSERT_TRUE(watch->reader->Read(&event));
    revision = event.job().revision();
    watch->context.TryCancel();
    EXPECT_EQ(watch->reader->Finish().error_code(), grpc::CANCELLED);
  }
  EXPECT_NE(server_.GetJob(job.name()).state(), v1::JOB_STATE_CANCELLED)
      << "closing a watch cancels nothing";
  ASSERT_TRUE(server_.Cancel(job.name()).ok());
  const auto watch = Start(job.name(), 0, revision);
  v1::JobEvent event;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  while (watch->reader->Read(&event)) {
    EXPECT_GE(event.job().revision(), revision);
    last = event.job().state();
  }
  EXPECT_EQ(last, v1::JOB_STATE_CANCELLED);
}

TEST_F(WatchRpcTest, AWatcherThatComesBackSeesTheStatesInBetween) {
  const v1::Job blocker = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(blocker.name());
  const v1::Job job = server_.MustCreate(server_.Layer(32, 32, 300));
  ASSERT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(server_.Cancel(blocker.name()).ok());
  server_.WaitForEnd(job.name());

  const auto watch = Start(job.name(), 0, job.revision());
  v1::JobEvent event;
  std::vector<std::pair<v1::JobEvent::Kind, v1::JobState>> seen;
  int64_t revision = job.revision();
  while (watch->reader->Read(&event)) {
    seen.emplace_back(event.kind(), event.job().state());
    EXPECT_GE(event.job().revision(), revision);
    revision = event.job().revision();
  }
  EXPECT_TRUE(watch->reader->Finish().ok());
  EXPECT_EQ(seen, (std::vector<std::pair<v1::JobEvent::Kind, v1::JobState>>{
                      {v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_QUEUED},
                      {v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_RUNNING},
                      {v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED}}));
  EXPECT_FALSE(event.job().result().mask().empty());
}

TEST_F(WatchRpcTest, AQuietJobStillBeats) {
  const v1::Job blocker = server_.MustCreate(server_.Endless());
  server_.WaitUntilRunning(blocker.name());
  const v1::Job quiet = server_.MustCreate(server_.Layer(8, 8, 5));  // queued behind it
  const auto watch = Start(quiet.name(), 100);
  v1::JobEvent event;
  ASSERT_TRUE(watch->reader->Read(&event));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(watch->reader->Read(&event));
    EXPECT_EQ(event.kind(), v1::JobEvent::KIND_HEARTBEAT);
    EXPECT_EQ(event.job().name(), quiet.name());
    EXPECT_EQ(event.job().state(), v1::JOB_STATE_QUEUED);
  }
  ASSERT_TRUE(server_.Cancel(quiet.name()).ok());
  while (watch->reader->Read(&event)) continue;
  EXPECT_EQ(event.kind(), v1::JobEvent::KIND_STATE_CHANGE);
  EXPECT_TRUE(watch->reader->Finish().ok());
}

TEST_F(WatchRpcTest, ASlowWatcherSeesEveryStateAndTheLatestProgress) {
  v1::JobSpec spec = server_.Layer(16, 16, 200'000);
  spec.mutable_sparsefw()->set_report_every(1);
  const v1::Job job = server_.MustCreate(spec);
  const auto watch = Start(job.name());
  v1::JobEvent event;
  ASSERT_TRUE(watch->reader->Read(&event));
  // Tens of thousands of reports happen while nobody reads.
  server_.WaitUntilRunning(job.name());
  while (server_.GetJob(job.name()).progress().iteration() < 50'000 &&
         server_.GetJob(job.name()).state() == v1::JOB_STATE_RUNNING) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(server_.Cancel(job.name()).ok());
  int events = 1;
  while (watch->reader->Read(&event)) ++events;
  EXPECT_TRUE(watch->reader->Finish().ok());
  EXPECT_NE(event.job().state(), v1::JOB_STATE_RUNNING);
  EXPECT_LT(events, 40'000);
}

// What does not change of a job comes with its states only.
TEST_F(WatchRpcTest, ProgressAndHeartbeatsOfALargeJobAreSmall) {
  v1::JobSpec spec = server_.Endless();
  spec.mutable_sparsefw()->set_report_every(1);
  for (int i = 0; i < 256; ++i) {
    spec.mutable_sweep()->add_points()->set_alpha(static_cast<double>(i) / 512);
  }
  (*spec.mutable_labels())["long"] = std::string(60, 'x');
  const v1::Job job = server_.MustCreate(spec);
  const auto watch = Start(job.name(), 100);
  v1::JobEvent event;
  ASSERT_TRUE(watch->reader->Read(&event));
  EXPECT_EQ(event.kind(), v1::JobEvent::KIND_SNAPSHOT);
  EXPECT_EQ(event.job().spec().sweep().points_size(), 256);
  EXPECT_GT(event.ByteSizeLong(), 4096U);
  int small = 0;
  while (small < 3 && watch->reader->Read(&event)) {
    if (event.kind() == v1::JobEvent::KIND_STATE_CHANGE) {
      EXPECT_EQ(event.job().spec().sweep().points_size(), 256);
      continue;
    }
    EXPECT_LT(event.ByteSizeLong(), 1024U) << event.ShortDebugString();
    EXPECT_EQ(event.job().name(), job.name());
    EXPECT_EQ(event.job().state(), v1::JOB_STATE_RUNNING);
    EXPECT_GT(event.job().revision(), 0);
    EXPECT_TRUE(event.job().has_start_time());
    if (event.kind() == v1::JobEvent::KIND_PROGRESS) {
      ++small;
      EXPECT_GT(event.job().progress().iterations_total(), 0);
    }
  }
  EXPECT_EQ(small, 3);
  ASSERT_TRUE(server_.Cancel(job.name()).ok());
  while (watch->reader->Read(&event)) continue;
  EXPECT_EQ(event.job().spec().sweep().points_size(), 256) << "the end is whole";
  EXPECT_TRUE(event.job().has_result());
}

TEST_F(WatchRpcTest, RefusesWhatIsWrong) {
  EXPECT_TRUE(Failed(Error("jobs/none", 0, 0), grpc::NOT_FOUND, "JOB_NOT_FOUND", "jobs/none"));
  const v1::Job job = server_.WaitForEnd(server_.MustCreate(server_.Layer(8, 8, 5)).name());
  EXPECT_TRUE(Failed(Error(job.name(), 50, 0), grpc::INVALID_ARGUMENT, "OPTION_INVALID",
                     "heartbeat_interval must be at least 100ms; got 50ms"));
  EXPECT_TRUE(
      Failed(Error(job.name(), 0, -1), grpc::INVALID_ARGUMENT, "OPTION_INVALID", "after_revision"));
}

}  // namespace
}  // namespace sparsefw::server
