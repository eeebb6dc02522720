// Jobs over a fake server: creation, checks and lists.
#include <gmock/gmock.h>

#include "absl/strings/str_format.h"
#include "tests/client/client_fixture.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using testing::Error;
using testing::FastOptions;

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

TEST_F(JobsTest, ADeletionWhoseAnswerIsLostSucceeds) {
  server_.jobs.lost_deletes = 1;
  server_.jobs.jobs["jobs/7"];
  SPARSEFW_EXPECT_OK(client_->DeleteJob("jobs/7"));
  EXPECT_TRUE(server_.jobs.jobs.empty());
  EXPECT_THAT(client_->DeleteJob("jobs/7"), StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND"));

  server_.tensors.lost_deletes = 1;
  const std::string tensor = server_.tensors.Put(v1::TensorSpec(), "bytes");
  SPARSEFW_EXPECT_OK(client_->DeleteTensor(tensor));
  EXPECT_EQ(server_.tensors.left(), 0u);
  EXPECT_THAT(client_->DeleteTensor(tensor), StatusIs(absl::StatusCode::kNotFound));
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

}  // namespace
}  // namespace sparsefw::client
