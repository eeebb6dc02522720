#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job_store.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Pair;
using testing::StatusIs;

Job Named(const std::string& name, JobState state = JobState::kQueued) {
  Job job;
  job.name = name;
  job.state = state;
  return job;
}

class MemoryJobStoreTest : public ::testing::Test {
 protected:
  void Insert(const Job& job, const std::string& request_id = "") {
    ASSERT_THAT(store_->Insert(job, request_id, "body"), IsOk());
  }
  void InsertMany(int count) {
    for (int i = 0; i < count; ++i) Insert(Named("jobs/" + std::to_string(i)));
  }
  // Names of one page; `token` moves on.
  std::vector<std::string> Page(std::string& token, int size, const JobFilter& filter = {}) {
    const auto page = store_->List(filter, size, token);
    EXPECT_THAT(page, IsOk());
    std::vector<std::string> names;
    if (page.ok()) {
      for (const Job& job : page->jobs) names.push_back(job.name);
      token = page->next_page_token;
    }
    return names;
  }
  std::vector<std::string> All(const JobFilter& filter = {}) {
    std::string token;
    return Page(token, 1000, filter);
  }

  const std::unique_ptr<JobStore> store_ = NewMemoryJobStore();
};

TEST_F(MemoryJobStoreTest, GivesBackWhatItWasTold) {
  Job job = Named("jobs/a");
  job.owner = "somebody";
  Insert(job);
  job.state = JobState::kRunning;
  job.revision = 2;
  ASSERT_THAT(store_->Update(job), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, store_->Get("jobs/a"));
  EXPECT_EQ(read.owner, "somebody");
  EXPECT_EQ(read.state, JobState::kRunning);
  EXPECT_EQ(read.revision, 2);
}

TEST_F(MemoryJobStoreTest, UnknownNamesAreNotFound) {
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none");
  EXPECT_THAT(store_->Get("jobs/none"), not_found);
  EXPECT_THAT(store_->Update(Named("jobs/none")), not_found);
  EXPECT_THAT(store_->Delete("jobs/none"), not_found);
}

TEST_F(MemoryJobStoreTest, InsertsJobAndRequestTogetherOrNothing) {
  Insert(Named("jobs/a"), "request");
  EXPECT_THAT(store_->Insert(Named("jobs/a"), "other", "body"),
              StatusIs(absl::StatusCode::kAlreadyExists, "", "jobs/a"));
  EXPECT_FALSE(store_->FindRequest("other"));
  EXPECT_THAT(store_->Insert(Named("jobs/b"), "request", "body"),
              StatusIs(absl::StatusCode::kAlreadyExists, "", "request", "jobs/a"));
  EXPECT_THAT(store_->Get("jobs/b"), StatusIs(absl::StatusCode::kNotFound));
  const auto record = store_->FindRequest("request");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->job, "jobs/a");
  EXPECT_EQ(record->fingerprint, "body");
}

TEST_F(MemoryJobStoreTest, JobsWithoutRequestIdDoNotCollide) {
  Insert(Named("jobs/a"));
  Insert(Named("jobs/b"));
  EXPECT_FALSE(store_->FindRequest(""));
}

TEST_F(MemoryJobStoreTest, DeletingFreesTheRequestId) {
  Insert(Named("jobs/a"), "request");
  ASSERT_THAT(store_->Delete("jobs/a"), IsOk());
  EXPECT_FALSE(store_->FindRequest("request"));
  Insert(Named("jobs/b"), "request");
  EXPECT_EQ(store_->FindRequest("request")->job, "jobs/b");
}

TEST_F(MemoryJobStoreTest, ListsNewestFirstPageByPage) {
  InsertMany(5);
  std::string token;
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/4", "jobs/3"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/2", "jobs/1"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/0"));
  EXPECT_EQ(token, "");
}

TEST_F(MemoryJobStoreTest, AFullLastPageHasNoTokenForAnEmptyOne) {
  InsertMany(4);
  std::string token;
  Page(token, 2);
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/1", "jobs/0"));
  EXPECT_EQ(token, "");
}

TEST_F(MemoryJobStoreTest, PagesAreStableWhileJobsComeAndGo) {
  InsertMany(6);
  std::string token;
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/5", "jobs/4"));
  Insert(Named("jobs/new"));
  ASSERT_THAT(store_->Delete("jobs/4"), IsOk());  // the one that the token came from
  ASSERT_THAT(store_->Delete("jobs/2"), IsOk());
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/3", "jobs/1"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/0"));
}

TEST_F(MemoryJobStoreTest, FiltersByStateAndByEveryLabel) {
  Job job = Named("jobs/a", JobState::kRunning);
  job.spec.labels = {{"model", "minilm"}, {"layer", "0"}};
  Insert(job);
  job = Named("jobs/b", JobState::kFailed);
  job.spec.labels = {{"model", "minilm"}, {"layer", "1"}};
  Insert(job);
  Insert(Named("jobs/c", JobState::kFailed));

  EXPECT_THAT(All(), ElementsAre("jobs/c", "jobs/b", "jobs/a"));
  EXPECT_THAT(All({{JobState::kFailed}, {}}), ElementsAre("jobs/c", "jobs/b"));
  EXPECT_THAT(All({{JobState::kFailed, JobState::kRunning}, {{"model", "minilm"}}}),
              ElementsAre("jobs/b", "jobs/a"));
  EXPECT_THAT(All({{}, {{"model", "minilm"}, {"layer", "0"}}}), ElementsAre("jobs/a"));
  EXPECT_THAT(All({{}, {{"layer", "2"}}}), IsEmpty());
  std::string token;
  EXPECT_THAT(Page(token, 1, {{JobState::kFailed}, {}}), ElementsAre("jobs/c"));
  EXPECT_THAT(Page(token, 1, {{JobState::kFailed}, {}}), ElementsAre("jobs/b"));
  EXPECT_EQ(token, "");
}

TEST_F(MemoryJobStoreTest, RefusesTokensAndSizesThatItDidNotGive) {
  InsertMany(3);
  std::string token;
  Page(token, 1);
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID", "page_token");
  EXPECT_THAT(store_->List({}, 1, "2"), refused);
  EXPECT_THAT(store_->List({}, 1, token + "z"), refused);
  EXPECT_THAT(store_->List({}, 1, token.substr(0, token.find('-') + 1)), refused);
  const auto other_server = NewMemoryJobStore();
  EXPECT_THAT(other_server->List({}, 1, token), refused);
  EXPECT_THAT(store_->List({}, 0, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID", "got 0"));
}

TEST_F(MemoryJobStoreTest, CountsByState) {
  EXPECT_THAT(store_->CountByState(), IsEmpty());
  Insert(Named("jobs/a", JobState::kQueued));
  Insert(Named("jobs/b", JobState::kQueued));
  Insert(Named("jobs/c", JobState::kFailed));
  ASSERT_THAT(store_->Update(Named("jobs/b", JobState::kRunning)), IsOk());
  ASSERT_THAT(store_->Delete("jobs/c"), IsOk());
  EXPECT_THAT(store_->CountByState(),
              ElementsAre(Pair(JobState::kQueued, 1), Pair(JobState::kRunning, 1)));
}

}  // namespace
}  // namespace sparsefw::server
