// One suite for every store of jobs.
#ifndef SPARSEFW_TESTS_SERVER_STORAGE_JOB_STORE_FIXTURE_H_
#define SPARSEFW_TESTS_SERVER_STORAGE_JOB_STORE_FIXTURE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/job_store.h"
#include "server/storage/database.h"
#include "server/storage/sqlite_stores.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::server {

inline Job Named(const std::string& name, JobState state = JobState::kQueued,
                 const std::string& tenant = "default") {
  Job job;
  job.name = name;
  job.state = state;
  job.owner.tenant = tenant;
  return job;
}

inline Job Ended(const std::string& name, absl::Time expire) {
  Job job = Named(name, JobState::kSucceeded);
  job.expire_time = expire;
  return job;
}

// A store and what it stands on. Reopen is what a restart does.
class Opened {
 public:
  virtual ~Opened() = default;
  virtual JobStore& store() = 0;
  virtual void Reopen() {}
};

class Memory final : public Opened {
 public:
  JobStore& store() override { return *store_; }

 private:
  const std::unique_ptr<JobStore> store_ = NewMemoryJobStore().value();
};

class Sqlite final : public Opened {
 public:
  Sqlite() { Reopen(); }
  JobStore& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    database_.reset();
    auto database = Database::Open(folder_.path() + "/jobs.db");
    if (!database.ok()) throw std::runtime_error(database.status().ToString());
    database_ = *std::move(database);
    store_ = NewSqliteJobStore(database_.get()).value();
  }

 private:
  const testing::TempFolder folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<JobStore> store_;
};

struct Kind {
  std::string name;
  bool durable;
  std::function<std::unique_ptr<Opened>()> open;
};

class JobStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  JobStore& store() { return opened_->store(); }
  void Insert(const Job& job, const std::string& request_id = "") {
    ASSERT_THAT(store().Insert(job, request_id, "body", {}), testing::IsOk());
  }
  void InsertMany(int count) {
    for (int i = 0; i < count; ++i) Insert(Named("jobs/" + std::to_string(i)));
  }
  // Names of one page; `token` moves on.
  std::vector<std::string> Page(std::string& token, int size, const JobFilter& filter = {}) {
    const auto page = store().List(filter, size, token);
    EXPECT_THAT(page, testing::IsOk());
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
  std::string RequestOf(const std::string& tenant, const std::string& id) {
    const auto record = store().FindRequest(tenant, id);
    EXPECT_THAT(record, testing::IsOk());
    return record.ok() && *record ? (*record)->job : "none";
  }
  std::vector<std::string> Expired(absl::Time now, int limit) {
    const auto jobs = store().ListExpired(now, limit);
    EXPECT_THAT(jobs, testing::IsOk());
    std::vector<std::string> names;
    for (const Job& job : *jobs) names.push_back(job.name);
    return names;
  }

  const std::unique_ptr<Opened> opened_ = GetParam().open();
};

inline auto StoreKinds() {
  return ::testing::Values(Kind{"Memory", false, [] { return std::make_unique<Memory>(); }},
                           Kind{"Sqlite", true, [] { return std::make_unique<Sqlite>(); }});
}
inline std::string NameOfKind(const ::testing::TestParamInfo<Kind>& kind) {
  return kind.param.name;
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_STORAGE_JOB_STORE_FIXTURE_H_
