#include "server/app/observe/job_counts.h"

#include "gtest/gtest.h"
#include "tests/server/jobs/job_test_util.h"

namespace sparsefw::server {
namespace {

TEST(JobCountsTest, WhatIsNotKnownIsNotZero) {
  FaultyStore store;
  Logger logger("error", "text");
  JobCounts counts(&store, &logger);
  store.count_fault = absl::InternalError("unreadable");
  EXPECT_FALSE(counts.Kept().has_value());
  EXPECT_EQ(counts.failures(), 1);

  store.count_fault = absl::OkStatus();
  Job job;
  job.name = "jobs/a";
  job.state = JobState::kFailed;
  ASSERT_TRUE(store.Insert(job, "", "", {}).ok());
  ASSERT_TRUE(counts.Kept().has_value());
  EXPECT_EQ(counts.Kept()->failed, 1);
  EXPECT_EQ(counts.Kept()->succeeded, 0);

  store.count_fault = absl::InternalError("unreadable");
  ASSERT_TRUE(counts.Kept().has_value()) << "what the store said last";
  EXPECT_EQ(counts.Kept()->failed, 1);
  EXPECT_EQ(counts.failures(), 3);
}

}  // namespace
}  // namespace sparsefw::server
