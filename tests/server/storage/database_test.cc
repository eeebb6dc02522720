#include "server/storage/database.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/connection.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;
using testing::TempFolder;

const auto kNotOurs =
    StatusIs(absl::StatusCode::kFailedPrecondition, "STORE_VERSION", "sparsefw-server");

class DatabaseTest : public ::testing::Test {
 protected:
  void Run(const std::string& sql) {
    SQLite::Database(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec(sql);
  }
  void TakeVersion1() {
    std::filesystem::copy_file(
        std::string(SPARSEFW_SOURCE_DIR) + "/tests/server/storage/testdata/version1.db", path_);
  }
  static std::string Ask(const Database& database, const std::string& sql) {
    std::string answer = "none";
    EXPECT_THAT(database.Read([&](SQLite::Database& db) {
      SQLite::Statement statement(db, sql);
      if (statement.executeStep()) answer = statement.getColumn(0).getString();
      return absl::OkStatus();
    }),
                IsOk());
    return answer;
  }
  static int64_t Count(const Database& database) {
    return std::stoll(Ask(database, "SELECT count(*) FROM settings"));
  }

  const TempFolder folder_;
  const std::string path_ = folder_.path() + "/sparsefw.db";
};

// A write at the start would need room on a full disk.
TEST_F(DatabaseTest, OpeningItAgainWritesNothing) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto first, Database::Open(path_));
  const auto size = std::filesystem::file_size(path_ + "-wal");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second, Database::Open(path_));
  EXPECT_EQ(std::filesystem::file_size(path_ + "-wal"), size);
}

// A statement of many pages would need a temporary file, which a container without one refuses.
TEST_F(DatabaseTest, WhatARollbackNeedsStaysInMemory) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  EXPECT_EQ(Ask(*database, "PRAGMA temp_store"), "2");
  EXPECT_THAT(database->Write(Durability::kPowerLoss,
                              [](SQLite::Database& db) {
                                EXPECT_EQ(db.execAndGet("PRAGMA temp_store").getInt(), 2);
                                return absl::OkStatus();
                              }),
              IsOk());
}

TEST_F(DatabaseTest, ANewFileIsForNobodyElsesEyes) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    struct stat info = {};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << entry.path();
  }
}

TEST_F(DatabaseTest, TheFolderMayBeALinkButNotTheFile) {
  const std::string link = folder_.path() + "/link";
  std::filesystem::create_directory(folder_.path() + "/real");
  std::filesystem::create_directory_symlink("real", link);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(link + "/sparsefw.db"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/real/sparsefw.db"));
  std::filesystem::create_symlink("real/sparsefw.db", path_);
  EXPECT_THAT(Database::Open(path_),
              StatusIs(absl::StatusCode::kPermissionDenied, "STORE_FAILED", "can be written"));
}

// The file was made by make_version1.py, without this code.
TEST_F(DatabaseTest, ADatabaseOfVersion1IsRead) {
  TakeVersion1();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto store, NewSqliteJobStore(database.get()));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store->List({}, 10, ""));
  ASSERT_EQ(page.jobs.size(), 2U);
  const Job& running = page.jobs[0];
  EXPECT_EQ(running.name, "jobs/00000000000000b2");
  EXPECT_EQ(running.state, JobState::kRunning);
  EXPECT_EQ(running.owner, (Owner{"default", "somebody"}));
  EXPECT_EQ(running.revision, 12) << "of the progress";
  EXPECT_EQ(running.progress->iteration, 1000);
  EXPECT_EQ(running.attempts, 1);
  EXPECT_EQ(running.spec.labels.at("layer"), "7");
  EXPECT_EQ(running.spec.pattern, Pattern::KeepOfGroup(2, 4));
  EXPECT_EQ(running.deadline, absl::InfiniteFuture());
  const Job& ended = page.jobs[1];
  EXPECT_EQ(ended.name, "jobs/00000000000000a1");
  EXPECT_EQ(ended.state, JobState::kSucceeded);
  EXPECT_EQ(ended.result->mask, "tensors/00000000000000c3");
  EXPECT_EQ(ended.result->solve.final_loss, 0.1);
  EXPECT_EQ(ended.expire_time, absl::FromUnixSeconds(1'700'086'400));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto request, store->FindRequest("default", "request-1"));
  EXPECT_EQ(request.value().job, ended.name);
  EXPECT_EQ(store->ListExpired(ended.expire_time, 10)->size(), 1U);
}

// A list that takes long stops nobody but other lists.
TEST_F(DatabaseTest, AReaderDoesNotWaitForALongOne) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  int64_t seen = 0;
  EXPECT_THAT(database->ReadMuch([&](SQLite::Database& db) {
    std::thread([&] { seen = Count(*database); }).join();
    EXPECT_EQ(db.execAndGet("SELECT count(*) FROM settings").getInt64(), seen);
    return absl::OkStatus();
  }),
              IsOk());
  EXPECT_GT(seen, 0);
}

TEST_F(DatabaseTest, JobsOfVersion1AreIndexedAndCounted) {
  TakeVersion1();
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  EXPECT_EQ(Ask(*database, "SELECT count(*) FROM job_labels"), "2") << "one label of each job";
  EXPECT_EQ(Ask(*database, "SELECT count(DISTINCT label) FROM job_labels"), "1");
  EXPECT_EQ(Ask(*database, "SELECT jobs FROM job_usage WHERE tenant = 'default'"), "2");
  EXPECT_EQ(Ask(*database, "SELECT bytes FROM job_usage"),
            Ask(*database, "SELECT sum(bytes) FROM jobs"));
  EXPECT_EQ(Ask(*database, "SELECT count(*) FROM jobs WHERE bytes < length(record)"), "0");
  EXPECT_EQ(Ask(*database, "SELECT request_fingerprint IS NULL FROM tensors"), "none");
  EXPECT_EQ(Ask(*database, "SELECT length(fingerprint) FROM jobs WHERE request_id IS NOT NULL"),
            "32");
}

TEST_F(DatabaseTest, ADamagedJobOfVersion1IsSetApart) {
  TakeVersion1();
  Run("UPDATE jobs SET record = x'ffffffff' WHERE name = 'jobs/00000000000000a1'");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  EXPECT_EQ(Ask(*database, "SELECT name FROM jobs WHERE damage IS NOT NULL"),
            "jobs/00000000000000a1");
  EXPECT_EQ(Ask(*database, "SELECT name FROM jobs WHERE damage IS NULL"), "jobs/00000000000000b2");
  EXPECT_EQ(Ask(*database, "SELECT jobs FROM job_usage"), "2") << "its bytes are still kept";
}

TEST_F(DatabaseTest, ADatabaseOfANewerServerIsRefusedAndLeftAlone) {
  { ASSERT_THAT(Database::Open(path_), IsOk()); }
  const int newer = Database::CurrentVersion() + 1;
  Run("PRAGMA user_version = " + std::to_string(newer));
  EXPECT_THAT(Database::Open(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "STORE_VERSION", path_,
                       "got " + std::to_string(newer), "newer server"));
  SQLite::Database db(path_);
  EXPECT_EQ(db.execAndGet("PRAGMA user_version").getInt(), newer);
}

TEST_F(DatabaseTest, OtherFilesAreRefusedAndLeftAlone) {
  Run("CREATE TABLE recipes (name TEXT)");
  EXPECT_THAT(Database::Open(path_), kNotOurs);
  SQLite::Database db(path_);
  EXPECT_EQ(db.execAndGet("SELECT count(*) FROM sqlite_schema").getInt(), 1);

  const std::string text = folder_.path() + "/notes.txt";
  const std::string line(5000, 'x');
  testing::WriteFile(text, line);
  EXPECT_THAT(Database::Open(text), kNotOurs);
  EXPECT_EQ(testing::ReadFile(text), line);
}

TEST_F(DatabaseTest, AFailedWriteTakesNothingAndTouchesNoOther) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  const int64_t before = Count(*database);
  constexpr int kThreads = 8;
  constexpr int kEach = 20;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const std::string name = std::to_string(t * kEach + i);
        const absl::Status status = database->Write(Durability::kPowerLoss, [&](auto& db) {
          db.exec("INSERT INTO settings VALUES ('" + name + "', '')");
          if (i % 2 == 1) return absl::AbortedError("odd");
          return absl::OkStatus();
        });
        EXPECT_EQ(status.code(), i % 2 == 1 ? absl::StatusCode::kAborted : absl::StatusCode::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Count(*database), before + kThreads * kEach / 2);
}

TEST_F(DatabaseTest, ErrorsOfSqliteBecomeStatuses) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::Open(path_));
  const auto failed = StatusIs(absl::StatusCode::kInternal, "STORE_FAILED");
  EXPECT_THAT(database->Write(Durability::kPowerLoss,
                              [](SQLite::Database& db) {
                                db.exec("INSERT INTO nothing VALUES (1)");
                                return absl::OkStatus();
                              }),
              failed);
  EXPECT_THAT(database->Read([](SQLite::Database& db) {
    db.exec("DELETE FROM settings");
    return absl::OkStatus();
  }),
              StatusIs(absl::StatusCode::kPermissionDenied, "STORE_FAILED"))
      << "readers do not write";
  EXPECT_GT(Count(*database), 0);
}

TEST_F(DatabaseTest, InMemoryDeletedRowsFreeTheirPages) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto database, Database::InMemory());
  const auto pages = [&] {
    int64_t count = 0;
    EXPECT_THAT(database->Read([&](Connection& db) {
      count = db.execAndGet("PRAGMA page_count").getInt64();
      return absl::OkStatus();
    }),
                IsOk());
    return count;
  };
  const auto write = [&](const char* sql) {
    EXPECT_THAT(database->Write(Durability::kPowerLoss,
                                [&](Connection& db) {
                                  db.exec(sql);
                                  return absl::OkStatus();
                                }),
                IsOk());
  };
  const int64_t empty = pages();
  write("CREATE TABLE blobs (bytes BLOB)");
  write("INSERT INTO blobs VALUES (zeroblob(4000000))");
  EXPECT_GT(pages(), empty + 500);
  write("DELETE FROM blobs");
  EXPECT_LT(pages(), empty + 10);
}

}  // namespace
}  // namespace sparsefw::server
