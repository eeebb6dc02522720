// Jobs over a fake server: creation, lists, watches and the one-call form.
#include <gmock/gmock.h>

#include "absl/strings/str_format.h"
#include "sparsefw/crc32c.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using testing::Error;
using testing::FastOptions;
using testing::WatchScript;

const grpc::Status kBroken(grpc::UNAVAILABLE, "Socket closed");

v1::JobEvent Event(v1::JobEvent::Kind kind, v1::JobState state, int64_t revision) {
  v1::JobEvent event;
  event.set_kind(kind);
  event.mutable_job()->set_name("jobs/7");
  event.mutable_job()->set_state(state);
  event.mutable_job()->set_revision(revision);
  return event;
}

using JobsTest = testing::ClientTest;

TEST_F(JobsTest, ARetriedCreateMakesOneJob) {
  server_.jobs.create_faults = {Error(grpc::RESOURCE_EXHAUSTED, "full", "QUEUE_FULL", {}, 1)};
  server_.jobs.lost_creates = 2;
  v1::JobSpec spec;
  spec.set_weight("tensors/1");
  const auto job = client_->CreateJob(spec);
  SPARSEFW_ASSERT_OK(job);
  EXPECT_EQ(server_.jobs.jobs.size(), 1u);
  ASSERT_EQ(server_.jobs.created.size(), 4u);
  for (const auto& request : server_.jobs.created) {
    EXPECT_EQ(request.request_id(), server_.jobs.created[0].request_id());
    EXPECT_EQ(request.owner(), "tests");
  }
  EXPECT_EQ(server_.jobs.created[0].request_id().size(), 36u);
}

TEST_F(JobsTest, AnAnswerThatComesTooLateIsAskedForAgain) {
  ClientOptions options = FastOptions();
  options.call_timeout = LongForACall();
  options.retry.give_up_after = options.call_timeout / 2;  // shorter than one attempt
  Connect(options);
  server_.jobs.late_creates = 2;
  SPARSEFW_ASSERT_OK(client_->CreateJob(v1::JobSpec()));
  EXPECT_EQ(server_.jobs.jobs.size(), 1u);
  ASSERT_EQ(server_.jobs.created.size(), 3u);
  EXPECT_EQ(server_.jobs.created[2].request_id(), server_.jobs.created[0].request_id());

  server_.jobs.late_creates = 3;
  EXPECT_THAT(client_->CreateJob(v1::JobSpec()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "", "no answer to CreateJob"));
  server_.jobs.late_creates = 1;
  CallOptions once;
  once.retry = false;
  EXPECT_THAT(client_->CreateJob(v1::JobSpec(), "", once),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(JobsTest, ARefusedSpecIsNotRetried) {
  server_.jobs.create_faults = {Error(grpc::INVALID_ARGUMENT,
                                      "keep must be in [1, group]; got keep=5, group=4",
                                      "PATTERN_INVALID")};
  EXPECT_THAT(client_->CreateJob(v1::JobSpec()),
              StatusIs(absl::StatusCode::kInvalidArgument, "PATTERN_INVALID", "keep=5"));
  EXPECT_EQ(server_.jobs.created.size(), 1u);
}

TEST_F(JobsTest, ValidateQueuesNothing) {
  SPARSEFW_EXPECT_OK(client_->ValidateJob(v1::JobSpec()));
  EXPECT_TRUE(server_.jobs.created[0].validate_only());
  EXPECT_TRUE(server_.jobs.jobs.empty());
}

TEST_F(JobsTest, CheckSendsTheDescriptionsAndCreatesNothing) {
  v1::CheckJobOptionsRequest request;
  request.mutable_weight()->add_dims(7);
  SPARSEFW_EXPECT_OK(client_->CheckJobOptions(request));
  ASSERT_EQ(server_.jobs.checked.size(), 1u);
  EXPECT_EQ(server_.jobs.checked[0].weight().dims(0), 7);
  EXPECT_TRUE(server_.jobs.created.empty());
  server_.jobs.check_status = Error(grpc::INVALID_ARGUMENT, "alpha=2", "OPTION_INVALID");
  EXPECT_THAT(client_->CheckJobOptions(request),
              StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "alpha=2"));
  EXPECT_EQ(server_.jobs.checked.size(), 2u) << "a refusal is not retried";
}

TEST_F(JobsTest, ListFollowsThePages) {
  for (int i = 0; i < 5; ++i) SPARSEFW_ASSERT_OK(client_->CreateJob(v1::JobSpec()));
  const auto all = client_->ListJobs();
  SPARSEFW_ASSERT_OK(all);
  ASSERT_EQ(all->size(), 5u);
  EXPECT_EQ((*all)[4].name(), "jobs/5");
  ListJobsOptions three;
  three.limit = 3;
  const auto some = client_->ListJobs(three);
  SPARSEFW_ASSERT_OK(some);
  EXPECT_EQ(some->size(), 3u);
}

TEST_F(JobsTest, WaitBeginsAtARevisionThatWasSeen) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_STATE_CHANGE, v1::JOB_STATE_SUCCEEDED, 9)}, grpc::Status::OK}};
  SPARSEFW_ASSERT_OK(client_->WaitJob("jobs/7", {}, {}, 5));
  EXPECT_THAT(server_.jobs.watched_after, ElementsAre(5));
}

TEST_F(JobsTest, WaitFollowsAJobToItsEnd) {
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
TEST_F(JobsTest, EveryEventHasTheSpecOfTheJob) {
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

TEST_F(JobsTest, WaitReattachesWithTheLastRevision) {
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
TEST_F(JobsTest, WaitStartsOverWhereTheRevisionIsUnknown) {
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

TEST_F(JobsTest, WaitSurvivesARestartedServer) {
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

TEST_F(JobsTest, WaitNoticesAServerThatHasGoneSilent) {
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

TEST_F(JobsTest, WaitReturnsErrorsOfTheServer) {
  EXPECT_THAT(client_->WaitJob("jobs/none"),
              StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none"));
}

TEST_F(JobsTest, WaitGivesUpOnASilentServer) {
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

TEST_F(JobsTest, AServerThatForgetsWhatItHasJustSaidIsNotAskedForEver) {
  const grpc::Status unknown = Error(grpc::OUT_OF_RANGE, "revision 9", "REVISION_UNKNOWN");
  for (int i = 0; i < 100; ++i) {
    server_.jobs.watches.push_back(
        {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 9)}, unknown});
  }
  EXPECT_THAT(client_->WaitJob("jobs/7"),
              StatusIs(absl::StatusCode::kOutOfRange, "REVISION_UNKNOWN"));
  EXPECT_EQ(server_.jobs.watched_after.size(), 1u);
}

TEST_F(JobsTest, AListMayHaveShortAndEmptyPages) {
  server_.jobs.list = [](int page, v1::ListJobsResponse* response) {
    if (page % 500 == 499) response->add_jobs()->set_name(absl::StrFormat("jobs/%d", page));
    if (page < 1999) response->set_next_page_token(absl::StrFormat("%d", page));
  };
  const auto jobs = client_->ListJobs();
  SPARSEFW_ASSERT_OK(jobs);
  EXPECT_EQ(jobs->size(), 4u);
}

TEST_F(JobsTest, AListWithoutAnEndIsRefused) {
  const auto refused = [&](std::string_view why, size_t pages) {
    server_.jobs.page_sizes.clear();
    EXPECT_THAT(client_->ListJobs(), StatusIs(absl::StatusCode::kInternal, "PROTOCOL", why));
    EXPECT_EQ(server_.jobs.page_sizes.size(), pages);
  };
  server_.jobs.list = [](int, v1::ListJobsResponse* response) {
    response->add_jobs();
    response->set_next_page_token("again");
  };
  refused("token of the page before", 2);
  server_.jobs.list = [](int page, v1::ListJobsResponse* response) {
    response->set_next_page_token(absl::StrFormat("%d", page));
  };
  refused("1000 pages in a row are empty", 1000);
  server_.jobs.list = [](int page, v1::ListJobsResponse* response) {
    if (page % 2 == 0) response->add_jobs();
    response->set_next_page_token(absl::StrFormat("%d", page));
  };
  refused("longer than 10000 pages", 10'000);
  server_.jobs.list = [](int page, v1::ListJobsResponse* response) {
    response->add_jobs()->set_owner(std::string(3 << 20, 'x'));
    response->set_next_page_token(absl::StrFormat("%d", page));
  };
  refused("longer than 1073741824 bytes", 342);
}

TEST_F(JobsTest, StopEndsAWaitAndCancelsNothing) {
  server_.jobs.watches = {
      {{Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_RUNNING, 1)}, grpc::Status::OK}};
  std::stop_source stop;
  EXPECT_THAT(client_->WaitJob(
                  "jobs/7", [&](const v1::JobEvent&) { stop.request_stop(); },
                  CallOptions{stop.get_token()}),
              StatusIs(absl::StatusCode::kCancelled, "STOPPED"));
  EXPECT_TRUE(server_.jobs.cancelled.empty());
}

class PruneTest : public testing::ClientTest {
 protected:
  PruneInput Input() const {
    PruneInput input;
    input.spec.set_method(v1::METHOD_WANDA);
    input.weight = WeightSpec(DType::kF32, 20, 30);
    input.weight_bytes = View(weight_);
    input.activations = ActivationSpec(DType::kF16, 30);
    input.activation_bytes = View(activations_);
    return input;
  }
  static v1::PruneResponse Accepted() {
    v1::PruneResponse response;
    response.mutable_accepted()->set_job("jobs/7");
    return response;
  }
  static v1::PruneResponse MaskChunk(const std::string& bytes, int64_t offset, uint32_t flip = 0) {
    v1::PruneResponse response;
    response.mutable_mask()->set_offset(offset);
    response.mutable_mask()->set_data(bytes);
    response.mutable_mask()->set_crc32c(Crc32c(View(bytes)) ^ flip);
    return response;
  }
  static v1::PruneResponse Final() {
    v1::PruneResponse response;
    response.mutable_job()->set_state(v1::JOB_STATE_SUCCEEDED);
    return response;
  }

  const std::string weight_ = RandomBytes(2400, 1);
  const std::string activations_ = RandomBytes(60 * 41, 2);
};

TEST_F(PruneTest, OneCallCarriesEverything) {
  v1::PruneResponse event;
  *event.mutable_event() = Event(v1::JobEvent::KIND_PROGRESS, v1::JOB_STATE_RUNNING, 2);
  const std::string mask = RandomBytes(80, 3);
  server_.jobs.prune_responses = {Accepted(), event, MaskChunk(mask.substr(0, 50), 0),
                                  MaskChunk(mask.substr(50), 50), Final()};
  int events = 0;
  const auto output = client_->Prune(Input(), [&](const v1::JobEvent&) { ++events; });
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(events, 1);
  EXPECT_EQ(output->job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));

  ASSERT_EQ(server_.jobs.pruned.size(), 1u + 3u + 3u);
  EXPECT_EQ(server_.jobs.pruned[0].header().weight().dims(1), 30);
  EXPECT_TRUE(server_.jobs.pruned[0].header().has_activations());
  std::string weight;
  std::string activations;
  for (const auto& request : server_.jobs.pruned) {
    weight += request.weight().data();
    activations += request.activations().data();
  }
  EXPECT_EQ(weight, weight_);
  EXPECT_EQ(activations, activations_);
}

TEST_F(PruneTest, ABadMaskIsDataLoss) {
  server_.jobs.prune_responses = {Accepted(), MaskChunk("ab", 0, 1), Final()};
  EXPECT_THAT(client_->Prune(Input()),
              StatusIs(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH", "mask"));
  server_.jobs.prune_responses = {Accepted(), MaskChunk("ab", 5), Final()};
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "mask"));
}

TEST_F(PruneTest, NoMoreIsTakenThanTheLayerHas) {
  const std::string mask = RandomBytes(80, 3);
  const std::vector<v1::PruneResponse> bad[] = {
      {Accepted(), MaskChunk(mask + "x", 0), Final()},
      {Accepted(), MaskChunk(mask, 0), MaskChunk("x", 80), Final()},
      {Accepted(), MaskChunk("", 0), Final()},
      {Accepted(), MaskChunk(mask.substr(1), 0), Final()},
      {Accepted(), MaskChunk(mask, 0), Final(), Final()},
  };
  for (const auto& responses : bad) {
    server_.jobs.prune_responses = responses;
    EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL"));
  }
}

TEST_F(PruneTest, TheServersRefusalIsReturned) {
  server_.jobs.prune_status = Error(grpc::INVALID_ARGUMENT, "NaN", "NON_FINITE");
  EXPECT_THAT(client_->Prune(Input()),
              StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE", "NaN"));
  server_.jobs.prune_status = grpc::Status::OK;
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kInternal, "PROTOCOL", "final"));
}

TEST_F(PruneTest, ADetachedJobIsFollowedWhenTheStreamBreaks) {
  server_.jobs.prune_responses = {Accepted()};
  server_.jobs.prune_status = kBroken;
  const std::string mask = RandomBytes(80, 3);
  v1::JobEvent end = Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_SUCCEEDED, 4);
  end.mutable_job()->mutable_result()->set_mask(server_.tensors.Put(MaskSpec(20, 30), mask));
  server_.jobs.watches = {{{end}, grpc::Status::OK}};
  EXPECT_THAT(client_->Prune(Input()), StatusIs(absl::StatusCode::kUnavailable));

  PruneInput detached = Input();
  detached.detach = true;
  const auto output = client_->Prune(detached);
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));
}

TEST_F(PruneTest, AJobIsFollowedOverTheRestartOfItsServer) {
  server_.jobs.prune_responses = {Accepted()};
  server_.jobs.prune_status = Error(grpc::UNAVAILABLE, "draining", "DRAINING", {}, 1);
  const std::string mask = RandomBytes(80, 3);
  v1::JobEvent end = Event(v1::JobEvent::KIND_SNAPSHOT, v1::JOB_STATE_SUCCEEDED, 4);
  end.mutable_job()->mutable_result()->set_mask(server_.tensors.Put(MaskSpec(20, 30), mask));
  server_.jobs.watches = {{{end}, grpc::Status::OK}};
  const auto output = client_->Prune(Input());
  SPARSEFW_ASSERT_OK(output);
  EXPECT_EQ(output->mask, std::vector<std::byte>(View(mask).begin(), View(mask).end()));
}

TEST_F(PruneTest, ContradictoryInputIsRefusedBeforeItTravels) {
  PruneInput both = Input();
  both.gram = GramTensorSpec(DType::kF32, 30);
  both.gram_bytes = both.weight_bytes;
  EXPECT_THAT(client_->Prune(both),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "not both"));
  PruneInput named = Input();
  named.spec.set_weight("tensors/1");
  EXPECT_THAT(client_->Prune(named),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "empty"));
  PruneInput small = Input();
  small.weight_bytes = small.weight_bytes.first(10);
  EXPECT_THAT(client_->Prune(small),
              StatusIs(absl::StatusCode::kInvalidArgument, "CLIENT_ARGUMENT", "weight", "2400"));
  EXPECT_TRUE(server_.jobs.pruned.empty());
}

}  // namespace
}  // namespace sparsefw::client
