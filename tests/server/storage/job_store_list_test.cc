// Stores of jobs: lists. job_store_test.cc says of which stores.
#include <string>

#include "tests/server/storage/job_store_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

TEST_P(JobStoreTest, ListsNewestFirstPageByPage) {
  InsertMany(5);
  std::string token;
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/4", "jobs/3"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/2", "jobs/1"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/0"));
  EXPECT_EQ(token, "");
}

TEST_P(JobStoreTest, AFullLastPageHasNoTokenForAnEmptyOne) {
  InsertMany(4);
  std::string token;
  Page(token, 2);
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/1", "jobs/0"));
  EXPECT_EQ(token, "");
}

TEST_P(JobStoreTest, PagesAreStableWhileJobsComeAndGo) {
  InsertMany(6);
  std::string token;
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/5", "jobs/4"));
  Insert(Named("jobs/new"));
  ASSERT_THAT(store().Delete("jobs/4"), IsOk());  // the one that the token came from
  ASSERT_THAT(store().Delete("jobs/2"), IsOk());
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/3", "jobs/1"));
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/0"));
}

TEST_P(JobStoreTest, FiltersByTenantStateAndEveryLabel) {
  Job job = Named("jobs/a", JobState::kRunning, "one");
  job.spec.labels = {{"model", "minilm"}, {"layer", "0"}};
  Insert(job);
  job = Named("jobs/b", JobState::kFailed, "two");
  job.spec.labels = {{"model", "minilm"}, {"layer", "1"}};
  Insert(job);
  Insert(Named("jobs/c", JobState::kFailed, "one"));

  EXPECT_THAT(All(), ElementsAre("jobs/c", "jobs/b", "jobs/a"));
  EXPECT_THAT(All({{}, {}, "one"}), ElementsAre("jobs/c", "jobs/a"));
  EXPECT_THAT(All({{}, {}, "three"}), IsEmpty());
  EXPECT_THAT(All({{JobState::kFailed}, {}}), ElementsAre("jobs/c", "jobs/b"));
  EXPECT_THAT(All({{JobState::kFailed}, {}, "one"}), ElementsAre("jobs/c"));
  EXPECT_THAT(All({{JobState::kFailed, JobState::kRunning}, {{"model", "minilm"}}}),
              ElementsAre("jobs/b", "jobs/a"));
  EXPECT_THAT(All({{}, {{"model", "minilm"}, {"layer", "0"}}}), ElementsAre("jobs/a"));
  EXPECT_THAT(All({{}, {{"layer", "2"}}}), IsEmpty());
  std::string token;
  EXPECT_THAT(Page(token, 1, {{JobState::kFailed}, {}}), ElementsAre("jobs/c"));
  EXPECT_THAT(Page(token, 1, {{JobState::kFailed}, {}}), ElementsAre("jobs/b"));
  EXPECT_EQ(token, "");
}

// More than a store reads at once.
TEST_P(JobStoreTest, FindsARareLabelAmongMany) {
  for (int i = 0; i < 600; ++i) {
    Job job = Named("jobs/" + std::to_string(i));
    if (i % 250 == 0) job.spec.labels = {{"rare", "yes"}};
    Insert(job);
  }
  const JobFilter rare{{}, {{"rare", "yes"}}, "default"};
  EXPECT_THAT(All(rare), ElementsAre("jobs/500", "jobs/250", "jobs/0"));
  std::string token;
  EXPECT_THAT(Page(token, 2, rare), ElementsAre("jobs/500", "jobs/250"));
  EXPECT_THAT(Page(token, 2, rare), ElementsAre("jobs/0"));
  EXPECT_EQ(token, "");
}

TEST_P(JobStoreTest, RefusesTokensAndSizesThatItDidNotGive) {
  InsertMany(3);
  std::string token;
  Page(token, 1);
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID", "page_token");
  EXPECT_THAT(store().List({}, 1, "2"), refused);
  EXPECT_THAT(store().List({}, 1, token + "z"), refused);
  EXPECT_THAT(store().List({}, 1, token.substr(0, token.size() / 2)), refused);
  const auto other_server = GetParam().open();
  EXPECT_THAT(other_server->store().List({}, 1, token), refused);
  EXPECT_THAT(store().List({}, 0, ""),
              StatusIs(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID", "got 0"));
}

TEST_P(JobStoreTest, ListsExpiredJobsEarliestFirst) {
  const absl::Time t = absl::FromUnixSeconds(1'700'000'000);
  Insert(Ended("jobs/late", t + absl::Seconds(2)));
  Insert(Ended("jobs/early", t + absl::Seconds(1)));
  Insert(Ended("jobs/never", absl::InfiniteFuture()));
  Job running = Named("jobs/running", JobState::kRunning);
  running.expire_time = t;  // of no meaning before the end
  Insert(running);
  EXPECT_THAT(Expired(t, 10), IsEmpty());
  EXPECT_THAT(Expired(t + absl::Seconds(1) - absl::Nanoseconds(1), 10), IsEmpty());
  EXPECT_THAT(Expired(t + absl::Seconds(1), 10), ElementsAre("jobs/early"));
  EXPECT_THAT(Expired(t + absl::Hours(1), 10), ElementsAre("jobs/early", "jobs/late"));
  EXPECT_THAT(Expired(t + absl::Hours(1), 1), ElementsAre("jobs/early"));
  ASSERT_THAT(store().Delete("jobs/early"), IsOk());
  ASSERT_THAT(store().Update(Ended("jobs/late", t + absl::Hours(2))), IsOk());
  EXPECT_THAT(Expired(t + absl::Hours(1), 10), IsEmpty());
  EXPECT_THAT(Expired(t + absl::Hours(24 * 365 * 50), 10), ElementsAre("jobs/late"));
}

}  // namespace
}  // namespace sparsefw::server
