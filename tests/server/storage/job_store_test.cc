// Stores of jobs: jobs, requests, what is counted.
#include "server/jobs/job_store.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/storage/job_store_fixture.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Pair;
using testing::StatusIs;

TEST_P(JobStoreTest, GivesBackWhatItWasTold) {
  EXPECT_EQ(store().durable(), GetParam().durable);
  Job job = Named("jobs/a");
  job.owner = {"tenant", "somebody"};
  Insert(job);
  job.state = JobState::kRunning;
  job.revision = 2;
  ASSERT_THAT(store().Update(job), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, store().Get("jobs/a"));
  EXPECT_EQ(read.owner, (Owner{"tenant", "somebody"}));
  EXPECT_EQ(read.state, JobState::kRunning);
  EXPECT_EQ(read.revision, 2);
}

TEST_P(JobStoreTest, ProgressIsNewerThanTheJobUntilTheNextChange) {
  Job job = Named("jobs/a", JobState::kRunning);
  job.revision = 2;
  Insert(job);
  for (int64_t i = 1; i <= 3; ++i) {
    JobProgress progress;
    progress.report.iteration = 100 * i;
    progress.revision = 2 + i;
    ASSERT_THAT(store().UpdateProgress(job.name, progress), IsOk());
  }
  SPARSEFW_ASSERT_OK_AND_ASSIGN(Job read, store().Get("jobs/a"));
  EXPECT_EQ(read.progress->iteration, 300);
  EXPECT_EQ(read.revision, 5);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto page, store().List({}, 1, ""));
  EXPECT_EQ(page.jobs[0].progress->iteration, 300);
  job.progress.reset();
  job.revision = 6;
  ASSERT_THAT(store().Update(job), IsOk());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(read, store().Get("jobs/a"));
  EXPECT_FALSE(read.progress);
  EXPECT_EQ(read.revision, 6);
}

TEST_P(JobStoreTest, ANameIsItsTenantsAlone) {
  Insert(Named("jobs/a", JobState::kSucceeded, "one"));
  EXPECT_TRUE(*store().Has("jobs/a", "one"));
  EXPECT_FALSE(*store().Has("jobs/a", "two"));
  EXPECT_FALSE(*store().Has("jobs/a", ""));
  EXPECT_FALSE(*store().Has("jobs/none", "one"));
}

TEST_P(JobStoreTest, UnknownNamesAreNotFound) {
  const auto not_found = StatusIs(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "jobs/none");
  EXPECT_THAT(store().Get("jobs/none"), not_found);
  EXPECT_THAT(store().Update(Named("jobs/none")), not_found);
  EXPECT_THAT(store().UpdateProgress("jobs/none", JobProgress()), not_found);
  EXPECT_THAT(store().Delete("jobs/none"), not_found);
}

TEST_P(JobStoreTest, InsertsJobAndRequestTogetherOrNothing) {
  Insert(Named("jobs/a"), "request");
  EXPECT_THAT(store().Insert(Named("jobs/a"), "other", "body", {}),
              StatusIs(absl::StatusCode::kAlreadyExists, "", "jobs/a"));
  EXPECT_EQ(RequestOf("default", "other"), "none");
  EXPECT_THAT(store().Insert(Named("jobs/b"), "request", "body", {}),
              StatusIs(absl::StatusCode::kAlreadyExists, "", "request", "jobs/a"));
  EXPECT_THAT(store().Get("jobs/b"), StatusIs(absl::StatusCode::kNotFound));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto record, store().FindRequest("default", "request"));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->job, "jobs/a");
  EXPECT_EQ(record->fingerprint, "body");
}

TEST_P(JobStoreTest, FingerprintsAreBytes) {
  const std::string bytes("\0\xff\0body", 7);
  ASSERT_THAT(store().Insert(Named("jobs/a"), "request", bytes, {}), IsOk());
  EXPECT_EQ((*store().FindRequest("default", "request"))->fingerprint, bytes);
}

TEST_P(JobStoreTest, RequestIdsAreATenantsOwn) {
  Insert(Named("jobs/a", JobState::kQueued, "one"), "request");
  Insert(Named("jobs/b", JobState::kQueued, "two"), "request");
  EXPECT_EQ(RequestOf("one", "request"), "jobs/a");
  EXPECT_EQ(RequestOf("two", "request"), "jobs/b");
  EXPECT_EQ(RequestOf("three", "request"), "none");
  ASSERT_THAT(store().Delete("jobs/a"), IsOk());
  EXPECT_EQ(RequestOf("one", "request"), "none");
  EXPECT_EQ(RequestOf("two", "request"), "jobs/b");
}

TEST_P(JobStoreTest, JobsWithoutRequestIdDoNotCollide) {
  Insert(Named("jobs/a"));
  Insert(Named("jobs/b"));
  EXPECT_EQ(RequestOf("default", ""), "none");
}

TEST_P(JobStoreTest, DeletingFreesTheRequestId) {
  Insert(Named("jobs/a"), "request");
  ASSERT_THAT(store().Delete("jobs/a"), IsOk());
  EXPECT_EQ(RequestOf("default", "request"), "none");
  Insert(Named("jobs/b"), "request");
  EXPECT_EQ(RequestOf("default", "request"), "jobs/b");
}

TEST_P(JobStoreTest, NumbersOfDeletedJobsAreNotUsedAgain) {
  InsertMany(3);
  std::string token;
  EXPECT_THAT(Page(token, 1), ElementsAre("jobs/2"));
  ASSERT_THAT(store().Delete("jobs/2"), IsOk());
  Insert(Named("jobs/new"));
  EXPECT_THAT(Page(token, 5), ElementsAre("jobs/1", "jobs/0"));
}

TEST_P(JobStoreTest, CountsByState) {
  EXPECT_THAT(*store().CountByState(), IsEmpty());
  Insert(Named("jobs/a", JobState::kQueued));
  Insert(Named("jobs/b", JobState::kQueued));
  Insert(Named("jobs/c", JobState::kFailed));
  ASSERT_THAT(store().Update(Named("jobs/b", JobState::kRunning)), IsOk());
  ASSERT_THAT(store().Delete("jobs/c"), IsOk());
  EXPECT_THAT(*store().CountByState(),
              ElementsAre(Pair(JobState::kQueued, 1), Pair(JobState::kRunning, 1)));
}

TEST_P(JobStoreTest, KeptJobsCountUntilTheyAreDeleted) {
  const Job job = Named("jobs/a");
  const int64_t bytes = KeptBytes(job);
  const JobRoom two{2 * bytes, 3 * bytes};
  ASSERT_THAT(store().Insert(job, "", "", two), IsOk());
  ASSERT_THAT(store().Insert(Named("jobs/b"), "", "", two), IsOk());
  EXPECT_EQ(store().Usage()->bytes, 2 * bytes);
  const auto refused = [&](const Job& next, const JobRoom& room) {
    return store().Insert(next, "", "", room);
  };
  EXPECT_THAT(refused(Named("jobs/c"), two),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_JOB_BYTES", "default",
                       "max-job-bytes"));
  EXPECT_THAT(store().Get("jobs/c"), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(store().Insert(Named("jobs/c", JobState::kQueued, "other00"), "", "", two), IsOk());
  EXPECT_THAT(refused(Named("jobs/d", JobState::kQueued, "third00"), two),
              StatusIs(absl::StatusCode::kResourceExhausted, "JOBS_FULL"));
  EXPECT_THAT(refused(Named("jobs/d"), {{}, 9 * bytes, 3 * bytes}),
              StatusIs(absl::StatusCode::kResourceExhausted, "DISK_BUDGET"));

  Job ended = Named("jobs/a", JobState::kCancelled);
  ended.expire_time = absl::FromUnixSeconds(1'700'000'000);
  ASSERT_THAT(store().Update(ended), IsOk());
  EXPECT_EQ(store().Usage()->bytes, 2 * bytes + KeptBytes(ended));
  EXPECT_LT(KeptBytes(ended), bytes) << "room for a result is given back at the end";
  opened_->Reopen();
  EXPECT_THAT(refused(Named("jobs/d"), two),
              StatusIs(absl::StatusCode::kResourceExhausted, "QUOTA_JOB_BYTES"));
  ASSERT_THAT(store().Delete("jobs/a"), IsOk());
  EXPECT_THAT(store().Insert(Named("jobs/d"), "", "", two), IsOk());
  for (const std::string name : {"jobs/b", "jobs/c", "jobs/d"}) {
    ASSERT_THAT(store().Delete(name), IsOk());
  }
  EXPECT_EQ(store().Usage()->bytes, 0);
}

// Writers that share a commit have results of their own.
TEST_P(JobStoreTest, ManyThreadsAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        // Two threads each compete for a name.
        Job job = Named("jobs/" + std::to_string(t / 2) + "-" + std::to_string(i));
        const absl::Status inserted = store().Insert(job, "", "", {});
        if (absl::IsAlreadyExists(inserted)) ++taken;
        if (!inserted.ok()) continue;
        job.state = JobState::kRunning;
        EXPECT_THAT(store().Update(job), IsOk());
        EXPECT_THAT(store().UpdateProgress(job.name, {{}, i}), IsOk());
        EXPECT_EQ(store().Get(job.name)->revision, i) << "a write that has returned is seen";
        EXPECT_THAT(store().List({}, 3, ""), IsOk());
        if (i % 5 == 0) {
          EXPECT_THAT(store().Delete(job.name), IsOk());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A name that was deleted may be taken by the other thread after all.
  EXPECT_THAT((*store().CountByState())[JobState::kRunning], kThreads / 2 * kEach * 4 / 5);
  EXPECT_GE(taken, kThreads / 2 * kEach * 4 / 5);
}

TEST_P(JobStoreTest, EverythingIsThereAfterAReopening) {
  if (!GetParam().durable) GTEST_SKIP() << "not durable";
  InsertMany(3);
  Job job = Named("jobs/3", JobState::kRunning, "one");
  job.revision = 4;
  Insert(job, "request");
  JobProgress progress;
  progress.report.iteration = 500;
  progress.revision = 5;
  ASSERT_THAT(store().UpdateProgress(job.name, progress), IsOk());
  std::string token;
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/3", "jobs/2"));
  opened_->Reopen();
  EXPECT_THAT(Page(token, 2), ElementsAre("jobs/1", "jobs/0")) << "tokens stay valid";
  EXPECT_EQ(RequestOf("one", "request"), "jobs/3");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const Job read, store().Get("jobs/3"));
  EXPECT_EQ(read.progress->iteration, 500);
  EXPECT_EQ(read.revision, 5);
  EXPECT_THAT((*store().CountByState())[JobState::kQueued], 3);
}

INSTANTIATE_TEST_SUITE_P(Stores, JobStoreTest, StoreKinds(), NameOfKind);

}  // namespace
}  // namespace sparsefw::server
