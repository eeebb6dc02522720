#include <gmock/gmock.h>

#include "server/status/live_jobs.h"

namespace sparsefw::server {
namespace {

Job Succeeded() {
  Job job;
  job.state = JobState::kSucceeded;
  job.start_time = absl::FromUnixSeconds(100);
  job.end_time = absl::FromUnixSeconds(130);
  job.result.emplace();
  SolveSummary& solve = job.result->solve;
  solve.full_loss = 1000;
  solve.final_loss = 50;
  solve.reconstructed_loss = 20;
  solve.lower_bound = 40;
  return job;
}

TEST(EndedJobTest, LossAndCertificateAreShares) {
  const JobEnd end = EndOf(Succeeded());
  EXPECT_EQ(end.state, JobState::kSucceeded);
  EXPECT_EQ(end.reason, "ITERATIONS");
  EXPECT_EQ(end.time, absl::FromUnixSeconds(130));
  EXPECT_EQ(end.ran, absl::Seconds(30));
  EXPECT_DOUBLE_EQ(end.loss.value(), 0.05);
  EXPECT_DOUBLE_EQ(end.certificate.value(), 0.8);
}

TEST(EndedJobTest, TheLossIsThatOfNewWeightsAndWithoutAShrinkage) {
  Job job = Succeeded();
  job.result->weights_updated = true;
  EXPECT_DOUBLE_EQ(EndOf(job).loss.value(), 0.02);
  job.result->solve.unshrunk = {.full = 500, .warm_start = 100, .result = 15};
  EXPECT_DOUBLE_EQ(EndOf(job).loss.value(), 0.03);
}

TEST(EndedJobTest, WhatThereIsNotIsEmpty) {
  Job job = Succeeded();
  job.result->solve.lower_bound = 0;
  job.result->solve.full_loss = 0;
  EXPECT_FALSE(EndOf(job).certificate.has_value());
  EXPECT_FALSE(EndOf(job).loss.has_value());
}

TEST(EndedJobTest, AFailureBeforeTheStartHasAReasonAndNoMessage) {
  Job job;
  job.state = JobState::kFailed;
  job.error = absl::InternalError("of tenant alice");
  const JobEnd end = EndOf(job);
  EXPECT_FALSE(end.ran.has_value()) << "it never ran";
  EXPECT_FALSE(end.loss.has_value());
  EXPECT_EQ(end.reason.find("alice"), std::string::npos) << "no message";
  EXPECT_EQ(end.reason, "INTERNAL");
}

}  // namespace
}  // namespace sparsefw::server
