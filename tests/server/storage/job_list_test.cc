// Lists of the durable store: what one call looks at.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/connection.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

using Labels = std::map<std::string, std::string>;

class JobListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(database_, Database::Open(folder_.path() + "/jobs.db"));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(store_, NewSqliteJobStore(database_.get()));
  }
  void Insert(const std::string& name, JobState state, const Labels& labels) {
    Job job;
    job.name = name;
    job.state = state;
    job.spec.labels = labels;
    ASSERT_THAT(store_->Insert(job, "", "", {}), IsOk());
  }
  // Copies of a job, newer than all there are. Their records are not theirs: whoever reads
  // one finds it damaged.
  void Copy(const std::string& name, int count) {
    ASSERT_THAT(
        database_->Write(
            Durability::kProcessLoss,
            [&](SQLite::Database& db) {
              SQLite::Statement original(db, "SELECT number FROM jobs WHERE name = ?");
              original.bind(1, name);
              original.executeStep();
              const std::string number = original.getColumn(0).getString();
              const std::string last = db.execAndGet("SELECT max(number) FROM jobs").getString();
              db.exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
                      std::to_string(count) +
                      ") INSERT INTO jobs (name, tenant, state, record) SELECT '" + name +
                      "-' || i, tenant, state, record FROM jobs, n WHERE number = " + number);
              db.exec(
                  "INSERT INTO job_labels SELECT label, jobs.number FROM job_labels, jobs WHERE "
                  "job_labels.number = " +
                  number + " AND jobs.number > " + last);
              return absl::OkStatus();
            }),
        IsOk());
  }
  // Names by page.
  std::vector<std::vector<std::string>> Walk(const JobFilter& filter) {
    std::vector<std::vector<std::string>> pages;
    std::string token;
    do {
      const auto page = store_->List(filter, 10, token);
      EXPECT_THAT(page, IsOk());
      if (!page.ok()) break;
      pages.emplace_back();
      for (const Job& job : page->jobs) pages.back().push_back(job.name);
      token = page->next_page_token;
    } while (!token.empty());
    return pages;
  }
  int64_t Damaged() { return store_->Usage()->damaged; }

  const testing::TempFolder folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobListTest, AnIndexLeadsToALabel) {
  Insert("jobs/old", JobState::kSucceeded, {{"rare", "yes"}, {"model", "a"}});
  Insert("jobs/many", JobState::kSucceeded, {{"model", "a"}});
  Copy("jobs/many", 5000);
  EXPECT_THAT(Walk({{}, {{"rare", "yes"}}, "default"}), ElementsAre(ElementsAre("jobs/old")));
  EXPECT_THAT(Walk({{}, {{"rare", "no"}}, "default"}), ElementsAre(IsEmpty()));
  EXPECT_THAT(Walk({{}, {{"rare", "yes"}}, "other"}), ElementsAre(IsEmpty()));
  EXPECT_EQ(Damaged(), 0) << "nothing else was read";
}

TEST_F(JobListTest, LabelsThatRarelyMeetAreLookedForInSeveralCalls) {
  Insert("jobs/both", JobState::kSucceeded, {{"model", "a"}, {"layer", "1"}});
  Insert("jobs/many", JobState::kSucceeded, {{"layer", "1"}});
  Copy("jobs/many", 5000);
  EXPECT_THAT(Walk({{}, {{"model", "a"}, {"layer", "1"}}, "default"}),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre("jobs/both")));
  EXPECT_EQ(Damaged(), 0);
}

TEST_F(JobListTest, StatesThatAreRareAreLookedForInSeveralCalls) {
  Insert("jobs/running", JobState::kRunning, {});
  Insert("jobs/ended", JobState::kSucceeded, {});
  Copy("jobs/ended", 5000);
  const std::vector<JobState> unfinished = {JobState::kQueued, JobState::kRunning};
  EXPECT_THAT(Walk({unfinished, {}, "default"}),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre("jobs/running")));
  EXPECT_THAT(Walk({{JobState::kRunning}, {}, "default"}), ElementsAre(ElementsAre("jobs/running")))
      << "one state has an index";
  EXPECT_THAT(Walk({{JobState::kRunning}, {}, ""}), ElementsAre(ElementsAre("jobs/running")));
  EXPECT_EQ(Damaged(), 0);
}

TEST_F(JobListTest, OthersJobsAreNotLookedAt) {
  Insert("jobs/mine", JobState::kSucceeded, {});
  Job theirs;
  theirs.name = "jobs/theirs";
  theirs.owner.tenant = "eve";
  ASSERT_THAT(store_->Insert(theirs, "", "", {}), IsOk());
  Copy("jobs/theirs", 5000);
  EXPECT_THAT(Walk({{}, {}, "default"}), ElementsAre(ElementsAre("jobs/mine")));
  EXPECT_EQ(Damaged(), 0);
}

TEST_F(JobListTest, APageOfLargeJobsIsShort) {
  const std::string text(400'000, 'x');
  for (int i = 0; i < 8; ++i) {
    Insert("jobs/" + std::to_string(i), JobState::kSucceeded, {{"text", text}});
  }
  EXPECT_THAT(Walk({{}, {}, "default"}), ElementsAre(ElementsAre("jobs/7", "jobs/6", "jobs/5"),
                                                     ElementsAre("jobs/4", "jobs/3", "jobs/2"),
                                                     ElementsAre("jobs/1", "jobs/0")));
}

}  // namespace
}  // namespace sparsefw::server
