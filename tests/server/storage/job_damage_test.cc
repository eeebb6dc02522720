// Rows of jobs that something else has changed.
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "SQLiteCpp/SQLiteCpp.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

class JobDamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Open();
    for (const std::string name : {"jobs/a", "jobs/b", "jobs/c"}) {
      Job job;
      job.name = name;
      job.state = JobState::kSucceeded;
      job.expire_time = kStart;
      ASSERT_THAT(store_->Insert(job, "request of " + name, "body", {}), IsOk());
    }
  }
  void Open() {
    store_.reset();
    database_.reset();
    damage_.clear();
    SPARSEFW_ASSERT_OK_AND_ASSIGN(database_, Database::Open(path_));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        store_, NewSqliteJobStore(database_.get(), [this](const StoreIncident& damage) {
          damage_.push_back((damage.kind == StoreIncident::kDamagedJob ? "" : "progress of ") +
                            damage.name);
        }));
  }
  void Run(const std::string& sql) { SQLite::Database(path_, SQLite::OPEN_READWRITE).exec(sql); }
  std::vector<std::string> Names() { return NamesOf(store_->List({}, 10, "")->jobs); }
  std::vector<std::string> Expired() { return NamesOf(*store_->ListExpired(kStart, 10)); }
  static std::vector<std::string> NamesOf(const std::vector<Job>& jobs) {
    std::vector<std::string> names;
    for (const Job& job : jobs) names.push_back(job.name);
    return names;
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.path() + "/jobs.db";
  std::unique_ptr<Database> database_;
  std::unique_ptr<JobStore> store_;
  std::vector<std::string> damage_;
};

const auto kDamaged = StatusIs(absl::StatusCode::kDataLoss, "JOB_DAMAGED", "jobs/b");

TEST_F(JobDamageTest, OneDamagedJobStopsNoOther) {
  Run("UPDATE jobs SET record = x'ff00ff' WHERE name = 'jobs/b'");
  EXPECT_THAT(Names(), ElementsAre("jobs/c", "jobs/a"));
  EXPECT_THAT(damage_, ElementsAre("jobs/b"));
  EXPECT_THAT(Expired(), ElementsAre("jobs/a", "jobs/c"));
  EXPECT_THAT(store_->Get("jobs/b"), kDamaged);
  EXPECT_EQ((*store_->FindRequest("default", "request of jobs/b"))->job, "jobs/b")
      << "a repeated request makes no second job";
  EXPECT_EQ(store_->Usage()->damaged, 1);
  EXPECT_EQ((*store_->CountByState())[JobState::kSucceeded], 2);
  EXPECT_THAT(damage_, ElementsAre("jobs/b")) << "once";
  const std::string kept = "SELECT hex(record) FROM jobs WHERE name = 'jobs/b'";
  EXPECT_EQ(SQLite::Database(path_).execAndGet(kept).getString(), "FF00FF") << "to be looked at";
}

TEST_F(JobDamageTest, WhateverReadsItFirst) {
  Run("UPDATE jobs SET record = x'' WHERE name = 'jobs/b'");
  EXPECT_THAT(store_->Get("jobs/b"), kDamaged);
  EXPECT_THAT(damage_, ElementsAre("jobs/b"));
  Run("UPDATE jobs SET record = x'00' WHERE name = 'jobs/a'");
  EXPECT_THAT(Expired(), ElementsAre("jobs/c"));
  EXPECT_THAT(damage_, ElementsAre("jobs/b", "jobs/a"));
}

TEST_F(JobDamageTest, AStartNamesDamagedJobs) {
  Run("UPDATE jobs SET record = x'ff00ff' WHERE name = 'jobs/b'");
  Open();
  EXPECT_THAT(damage_, ElementsAre("jobs/b"));
  EXPECT_THAT(Names(), ElementsAre("jobs/c", "jobs/a"));
  Open();
  EXPECT_THAT(damage_, ElementsAre("jobs/b")) << "as long as it is kept";
  ASSERT_THAT(store_->Delete("jobs/b"), IsOk());
  Open();
  EXPECT_THAT(damage_, IsEmpty());
  EXPECT_EQ(store_->Usage()->damaged, 0);
}

// A flipped bit of a number or a label is a record that can be decoded.
TEST_F(JobDamageTest, EveryFlippedBitIsFound) {
  SQLite::Database db(path_, SQLite::OPEN_READWRITE);
  const auto size = db.execAndGet("SELECT length(record) FROM jobs WHERE name = 'jobs/b'").getInt();
  for (int at = 1; at <= size; at += 7) {
    db.exec("UPDATE jobs SET damage = NULL, record = CAST(substr(record, 1, " +
            std::to_string(at - 1) + ") || x'a5' || substr(record, " + std::to_string(at + 1) +
            ") AS BLOB) WHERE name = 'jobs/b'");
    EXPECT_THAT(store_->Get("jobs/b"), kDamaged) << at;
  }
}

TEST_F(JobDamageTest, ColumnsThatAreNotOfTheRecord) {
  for (const std::string change : {"state = 77", "state = 1", "tenant = 'eve'"}) {
    Run("UPDATE jobs SET damage = NULL, state = 2, tenant = 'default'");
    Run("UPDATE jobs SET " + change + " WHERE name = 'jobs/b'");
    EXPECT_THAT(store_->Get("jobs/b"), kDamaged) << change;
  }
}

TEST_F(JobDamageTest, DamagedProgressIsOnlyLost) {
  JobProgress progress;
  progress.report.iteration = 100;
  progress.revision = 7;
  ASSERT_THAT(store_->UpdateProgress("jobs/b", progress), IsOk());
  Run("UPDATE jobs SET progress = x'ffff' WHERE name = 'jobs/b'");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, store_->Get("jobs/b"));
  EXPECT_FALSE(read.progress.has_value());
  EXPECT_THAT(damage_, ElementsAre("progress of jobs/b"));
  EXPECT_THAT(Names(), ElementsAre("jobs/c", "jobs/b", "jobs/a"));
  EXPECT_THAT(damage_, ElementsAre("progress of jobs/b")) << "once";
  EXPECT_EQ(store_->Usage()->damaged, 0);
}

TEST_F(JobDamageTest, AJobThatIsWrittenAnewIsWhole) {
  const Job job = *store_->Get("jobs/b");
  Run("UPDATE jobs SET record = x'ff00ff' WHERE name = 'jobs/b'");
  EXPECT_THAT(store_->Get("jobs/b"), kDamaged);
  ASSERT_THAT(store_->Update(job), IsOk());
  EXPECT_THAT(store_->Get("jobs/b"), IsOk());
  EXPECT_THAT(Names(), ElementsAre("jobs/c", "jobs/b", "jobs/a"));
}

TEST_F(JobDamageTest, DamagedPagesOfTheFileAreAnErrorWithAReason) {
  std::string size;
  {
    SQLite::Database db(path_, SQLite::OPEN_READWRITE);
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    size = db.execAndGet("PRAGMA page_size").getString();
  }
  store_.reset();
  database_.reset();
  {
    const auto page = std::stoll(size);
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto end = static_cast<int64_t>(file.tellg());
    for (int64_t at = page; at < end; at += page) {
      file.seekp(at);
      file << std::string(200, '\x5a');
    }
  }
  const auto database = Database::Open(path_);
  absl::Status status = database.status();
  if (status.ok()) status = NewSqliteJobStore(database->get()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "STORE_CORRUPT"));
}

}  // namespace
}  // namespace sparsefw::server
