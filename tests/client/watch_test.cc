// Waiting for a job over a fake server: watches that end, break and are silent.
#include <gmock/gmock.h>

#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using testing::Error;
using testing::Event;
using testing::FastOptions;
using testing::kBroken;

using WatchTest = testing::ClientTest;

TEST_F(WatchTest, WaitBeginsAtARevisionThatWasSeen) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 9)}, grpc::Status::OK}};
  SPARSEFW_ASSERT_OK(client_->WaitJob("jobs/7", {}, {}, 5));
  EXPECT_THAT(server_.jobs.watched_after, ElementsAre(5));
}

TEST_F(WatchTest, WaitFollowsAJobToItsEnd) {
  server_.jobs.watches = {{{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_QUEUED, 1),
                            Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_RUNNING, 2),
                            Event(v1::JobEvent::KIND_PROGRESS, v1::JOB_STATE_RUNNING, 3),
                            Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 4)},
                           grpc::Status::OK}};
  std::vector<int64_t> revisions;
  const auto job = client_->WaitJob(
      "jobs/7", [&](const v1::JobEvent& event) { revisions.push_back(event.job().revision()); });
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(revisions, ElementsAre(1, 2, 3, 4));
}

// Progress comes without what does not change; callers have it all the same.
TEST_F(WatchTest, EveryEventHasTheSpecOfTheJob) {
  v1::JobEvent first = Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 2);
  first.mutable_job()->mutable_spec()->mutable_sweep()->add_points();
  first.mutable_job()->add_shape(5);
  first.mutable_job()->set_owner("somebody");
  v1::JobEvent progress = Event(v1::JobEvent::KIND_PROGRESS, v1::JOB_STATE_RUNNING, 3);
  progress.mutable_job()->mutable_progress()->set_iteration(7);
  v1::JobEvent last = Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 4);
  last.mutable_job()->mutable_spec();
  server_.jobs.watches = {{{first, progress, last}, grpc::Status::OK}};
  std::vector<v1::JobEvent> seen;
  SPARSEFW_ASSERT_OK(
      client_->WaitJob("jobs/7", [&](const v1::JobEvent& event) { seen.push_back(event); }));
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[1].job().spec().sweep().points_size(), 1);
  EXPECT_THAT(seen[1].job().shape(), ElementsAre(5));
  EXPECT_EQ(seen[1].job().owner(), "somebody");
  EXPECT_EQ(seen[1].job().progress().iteration(), 7);
  EXPECT_EQ(seen[2].job().spec().sweep().points_size(), 0) << "what came is not replaced";
}

TEST_F(WatchTest, WaitReattachesWithTheLastRevision) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_QUEUED, 1)}, kBroken},
      {{}, kBroken},
      // The server may end a watch with OK at any time.
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 5)}, grpc::Status::OK},
      {{}, grpc::Status::OK},
      {{}, Error(grpc::UNAVAILABLE, "draining", "DRAINING", {}, 1)},
      {{Event(v1::JobEvent::KIND_HEARTBEAT, v1::JOB_STATE_RUNNING, 5),
        Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_FAILED, 6)},
       kBroken},
  };
  const auto job = client_->WaitJob("jobs/7");
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(server_.jobs.watched_after, ElementsAre(0, 1, 1, 5, 5, 5));
}

// A store that lost the newest progress, or another server.
TEST_F(WatchTest, WaitStartsOverWhereTheRevisionIsUnknown) {
  const grpc::Status unknown = Error(grpc::OUT_OF_RANGE, "revision 9", "REVISION_UNKNOWN");
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 9)}, kBroken},
      {{}, unknown},
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_QUEUED, 5),
        Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 6)},
       grpc::Status::OK},
  };
  const auto job = client_->WaitJob("jobs/7");
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(server_.jobs.watched_after, ElementsAre(0, 9, 0));
  server_.jobs.watches = {{{}, unknown}};
  EXPECT_THAT(client_->WaitJob("jobs/7"),
              StatusIs(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN"))
      << "who has seen nothing does not ask again and again";
}

TEST_F(WatchTest, WaitSurvivesARestartedServer) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 3)}, kBroken},
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_SUCCEEDED, 9)}, grpc::Status::OK},
  };
  bool restarted = false;
  const auto job = client_->WaitJob("jobs/7", [&](const v1::JobEvent&) {
    if (std::exchange(restarted, true)) return;
    server_.Stop();
    server_.Start();
  });
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(WatchTest, WaitNoticesAServerThatHasGoneSilent) {
  ClientOptions options = FastOptions();
  options.watch_silence = 3 * LongForACall();
  std::vector<absl::Status> retried;
  options.on_retry = [&](const absl::Status& status, absl::Duration) { retried.push_back(status); };
  Connect(options);
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 3)},
       grpc::Status::OK,
       /*silent=*/true},
      {{Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 9)}, grpc::Status::OK},
  };
  const auto job = client_->WaitJob("jobs/7");
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(server_.jobs.watched_after, ElementsAre(0, 3));
  const int64_t third = absl::ToInt64Milliseconds(options.watch_silence / 3);
  EXPECT_THAT(server_.jobs.heartbeats_ms, ElementsAre(third, third))
      << "three in the time it waits";
  ASSERT_EQ(retried.size(), 1u);
  EXPECT_THAT(retried[0], StatusIs(absl::StatusCode::kUnavailable, "UNREACHABLE",
                                   "nothing came on the watch of jobs/7 for " +
                                       absl::FormatDuration(options.watch_silence)));
}

TEST_F(WatchTest, WaitReturnsErrorsOfTheServer) {
  EXPECT_THAT(client_->WaitJob("jobs/none"),
              StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none"));
}

TEST_F(WatchTest, WaitGivesUpOnASilentServer) {
  ClientOptions options = FastOptions();
  // More than there can be attempts: it does not end by itself.
  server_.jobs.watches.assign(1'000'000, {{}, kBroken});
  EXPECT_TRUE(InTime(absl::Milliseconds(50), [&](absl::Duration patience) {
    options.retry.give_up_after = patience;
    server_.jobs.watched_after.clear();
    Connect(options);
    EXPECT_THAT(client_->WaitJob("jobs/7"),
                StatusIs(absl::StatusCode::kUnavailable, "", "Socket closed", "gave up"));
    return server_.jobs.watched_after.size() > 1;
  }));
}

TEST_F(WatchTest, AServerThatForgetsWhatItHasJustSaidIsNotAskedForEver) {
  const grpc::Status unknown = Error(grpc::OUT_OF_RANGE, "revision 9", "REVISION_UNKNOWN");
  for (int i = 0; i < 100; ++i) {
    server_.jobs.watches.push_back(
        {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 9)}, unknown});
  }
  EXPECT_THAT(client_->WaitJob("jobs/7"),
              StatusIs(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN"));
  EXPECT_EQ(server_.jobs.watched_after.size(), 1u);
}

TEST_F(WatchTest, StopEndsAWaitAndCancelsNothing) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 1)}, grpc::Status::OK}};
  std::stop_source stop;
  EXPECT_THAT(client_->WaitJob(
                  "jobs/7", [&](const v1::JobEvent&) { stop.request_stop(); },
                  CallOptions{stop.get_token()}),
              StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
  EXPECT_TRUE(server_.jobs.cancelled.empty());
}

}  // namespace
}  // namespace sparsefw::client
