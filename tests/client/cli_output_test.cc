// What the program prints: progress, the result for people and for programs.
#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/progress.h"
#include "client/cpp/cli/result.h"
#include "nlohmann/json.hpp"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Job SucceededJob() {
  v1::Job job;
  job.set_name("jobs/7");
  job.set_state(v1::SUCCEEDED);
  job.mutable_spec()->set_method(v1::SPARSEFW);
  job.mutable_spec()->mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
  job.add_shape(10);
  job.add_shape(20);
  v1::JobResult& result = *job.mutable_result();
  result.set_mask("tensors/9");
  result.set_kept_count(80);
  result.mutable_losses()->set_full(1000);
  result.mutable_losses()->set_warm_start(200);
  result.mutable_losses()->set_relaxed(150);
  result.mutable_losses()->set_rounded(155);
  result.mutable_losses()->set_final(150.5);
  result.mutable_losses()->set_lower_bound(140);
  result.set_relative_reduction(0.2475);
  result.set_iterations(2000);
  result.set_stop_reason(v1::STOPPED_BY_DEADLINE);
  result.set_candidate(v1::CANDIDATE_ROUNDED);
  result.set_device("cpu");
  result.mutable_timings()->mutable_queue()->set_nanos(250'000'000);
  result.mutable_timings()->mutable_solve()->set_seconds(3);
  job.mutable_create_time()->set_seconds(100);
  job.mutable_end_time()->set_seconds(104);
  return job;
}

std::vector<std::string> Keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  return keys;
}

TEST(ResultTest, JsonHasExactlyTheKeysOfTheContract) {
  const auto json =
      ResultJson(SucceededJob(), ClientTimes{absl::Milliseconds(500), absl::Seconds(5)});
  EXPECT_THAT(Keys(json),
              ElementsAre("job", "state", "method", "pattern", "shape", "kept", "losses",
                          "relative_reduction", "iterations", "stop_reason", "candidate", "device",
                          "timings", "swaps", "drift", "damping"));
  EXPECT_THAT(Keys(json["losses"]), ElementsAre("full", "warm_start", "relaxed", "rounded", "final",
                                                "lower_bound", "reconstructed"));
  EXPECT_THAT(Keys(json["timings"]), ElementsAre("upload_s", "queue_s", "solve_s", "total_s"));
  EXPECT_EQ(json["job"], "jobs/7");
  EXPECT_EQ(json["state"], "SUCCEEDED");
  EXPECT_EQ(json["method"], "sparsefw");
  EXPECT_EQ(json["pattern"], "per-row");
  EXPECT_EQ(json["shape"], nlohmann::json({10, 20}));
  EXPECT_EQ(json["kept"], 80);
  EXPECT_EQ(json["losses"]["final"], 150.5);
  EXPECT_EQ(json["stop_reason"], "DEADLINE");
  EXPECT_EQ(json["candidate"], "ROUNDED");
  EXPECT_EQ(json["timings"]["upload_s"], 0.5);
  EXPECT_EQ(json["timings"]["queue_s"], 0.25);
  EXPECT_EQ(json["timings"]["total_s"], 5.0);
}

TEST(ResultTest, JsonOfAFetchHasTheServersTotalAndNoUpload) {
  const auto json = ResultJson(SucceededJob(), {});
  EXPECT_TRUE(json["timings"]["upload_s"].is_null());
  EXPECT_EQ(json["timings"]["total_s"], 4.0);
}

TEST(ResultTest, WhatIsNotThereIsNullAndTheKeysStay) {
  v1::Job job;
  job.set_name("jobs/8");
  job.set_state(v1::FAILED);
  const auto json = ResultJson(job, {});
  EXPECT_EQ(Keys(json).size(), 16u);
  for (const char* key : {"kept", "losses", "relative_reduction", "iterations", "stop_reason",
                          "candidate", "device"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  v1::Job infinite = SucceededJob();
  infinite.mutable_result()->mutable_losses()->set_lower_bound(
      -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(ResultJson(infinite, {})["losses"]["lower_bound"].is_null());
}

TEST(ResultTest, TextIsAlignedAndComplete) {
  const std::string text = ResultText(SucceededJob(), ClientTimes{absl::Seconds(2), std::nullopt});
  EXPECT_THAT(text, HasSubstr("kept              80 weights (40.0 %)\n"));
  EXPECT_THAT(text, HasSubstr("loss, final       150.5"));
  EXPECT_THAT(text, HasSubstr("15.050 % of full"));
  EXPECT_THAT(text, HasSubstr("24.8 % below the warm start (best: ROUNDED)"));
  EXPECT_THAT(text, HasSubstr("2000, stopped by the deadline"));
  EXPECT_THAT(text, HasSubstr("upload 2.0 s  queue 0.25 s  solve 3.0 s  total 4.0 s"));
  // A one-shot method has no iterations and no warm start to beat.
  v1::Job wanda = SucceededJob();
  wanda.mutable_spec()->set_method(v1::WANDA);
  EXPECT_THAT(ResultText(wanda, {}), Not(HasSubstr("iterations")));
  EXPECT_THAT(ResultText(wanda, {}), Not(HasSubstr("warm start")));
  // With swaps it has one, and SparseGPT is compared with one.
  wanda.mutable_spec()->mutable_refine()->set_swaps(true);
  EXPECT_THAT(ResultText(wanda, {}), HasSubstr("loss, warm start"));
  v1::Job sparsegpt = SucceededJob();
  sparsegpt.mutable_spec()->set_method(v1::SPARSEGPT);
  EXPECT_THAT(ResultText(sparsegpt, {}), HasSubstr("loss, warm start"));
  EXPECT_THAT(ResultText(sparsegpt, {}),
              HasSubstr("24.8 % below the warm start (with the updated"));
}

TEST(ResultTest, MetadataIsStrings) {
  const auto metadata = ResultMetadata(SucceededJob());
  EXPECT_EQ(metadata.at("job"), "jobs/7");
  EXPECT_EQ(metadata.at("losses.final"), "150.5");
  EXPECT_EQ(metadata.at("kept"), "80");
  EXPECT_EQ(metadata.at("sparsity"), "0.6");
  EXPECT_EQ(metadata.at("shape"), "[10,20]");
  EXPECT_EQ(metadata.count("timings"), 0u);
}

TEST(ResultTest, OutcomesAreExitCodes) {
  v1::Job job = SucceededJob();
  SPARSEFW_EXPECT_OK(JobOutcome(job));
  job.set_state(v1::CANCELLED);  // with the best mask so far
  SPARSEFW_EXPECT_OK(JobOutcome(job));
  job.clear_result();
  EXPECT_EQ(ExitCodeOf(JobOutcome(job)), ExitCode::kNoMask);
  job.set_state(v1::FAILED);
  job.mutable_error()->set_code(13);
  job.mutable_error()->set_message("the device is lost");
  EXPECT_EQ(ExitCodeOf(JobOutcome(job)), ExitCode::kJobFailed);
  EXPECT_THAT(JobOutcome(job),
              StatusIs(absl::StatusCode::kAborted, "", "jobs/7", "device is lost"));
  job.mutable_error()->set_code(4);
  EXPECT_EQ(ExitCodeOf(JobOutcome(job)), ExitCode::kNoMask);
}

TEST(ExitCodeTest, ErrorsOfTheClientLibraryAreTheServersFault) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("refused")), ExitCode::kServer);
  EXPECT_EQ(ExitCodeOf(UsageError("--x")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeOf(FileError(absl::NotFoundError("a: none"))), ExitCode::kUsage);
  EXPECT_TRUE(FileError(absl::OkStatus()).ok());
}

TEST(FormatTest, Numbers) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(5e12), "4.5 TiB");
  EXPECT_EQ(FormatSpan(absl::Milliseconds(123)), "0.12 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(12.34)), "12.3 s");
  EXPECT_EQ(FormatSpan(absl::Seconds(303)), "5 min 03 s");
  EXPECT_EQ(FormatSpan(absl::Minutes(125)), "2 h 05 min");
  EXPECT_EQ(FormatPercent(0.3421), "34.2 %");
}

v1::JobEvent Report(int64_t iteration) {
  v1::JobEvent event;
  event.mutable_job()->set_name("jobs/7");
  event.mutable_job()->set_state(v1::RUNNING);
  v1::Progress& progress = *event.mutable_job()->mutable_progress();
  progress.set_iteration(iteration);
  progress.set_iterations_total(2000);
  progress.set_relaxed_loss(12345.67);
  progress.set_gap(3.25);
  progress.set_best_loss(13000);
  progress.mutable_remaining_estimate()->set_seconds(61);
  return event;
}

class ProgressTest : public ::testing::Test {
 protected:
  ProgressDisplay Display(bool terminal, int columns = 200) {
    return ProgressDisplay(Console{out_, err_, terminal, columns}, [this] { return now_; });
  }
  std::ostringstream out_;
  std::ostringstream err_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ProgressTest, APipeGetsOneLineAReport) {
  {
    ProgressDisplay display = Display(false);
    v1::JobEvent queued;
    queued.mutable_job()->set_name("jobs/7");
    queued.mutable_job()->set_state(v1::QUEUED);
    queued.mutable_job()->set_queue_position(2);
    display.OnJob(queued);
    display.OnJob(queued);  // a heartbeat
    display.OnJob(Report(100));
    display.OnJob(Report(100));
    display.OnJob(Report(200));
  }
  EXPECT_EQ(err_.str(),
            "jobs/7 queued, 2 ahead\n"
            "jobs/7 running\n"
            "iteration 100/2000  relaxed 12346  gap 3.25  best 13000  61.0 s left\n"
            "iteration 200/2000  relaxed 12346  gap 3.25  best 13000  61.0 s left\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ProgressTest, ATerminalGetsOneLiveLine) {
  {
    ProgressDisplay display = Display(true, 40);
    display.OnJob(Report(100));
    now_ += absl::Milliseconds(20);  // too soon to paint again
    display.OnJob(Report(101));
    now_ += absl::Milliseconds(200);
    display.OnJob(Report(300));
  }
  EXPECT_EQ(err_.str(),
            "jobs/7 running\n"
            "\r\033[Kiteration 100/2000  relaxed 12346  gap "
            "\r\033[Kiteration 300/2000  relaxed 12346  gap "
            "\r\033[K");
}

TEST_F(ProgressTest, TransfersShowSizeAndRate) {
  ProgressDisplay display = Display(true);
  display.StartTransfer("uploading", "w.safetensors");
  now_ += absl::Seconds(2);
  display.OnTransfer({int64_t{20} << 20, int64_t{80} << 20});
  EXPECT_EQ(err_.str(),
            "\r\033[Kuploading w.safetensors  20.0 MiB of 80.0 MiB (25.0 %)  10.0 MiB/s");
  now_ += absl::Seconds(2);
  display.OnTransfer({int64_t{80} << 20, int64_t{80} << 20});
  err_.str("");
  display.EndTransfer();
  EXPECT_EQ(err_.str(), "\r\033[Kuploading w.safetensors  80.0 MiB in 4.0 s  20.0 MiB/s\n");
}

TEST_F(ProgressTest, APipeGetsOneLineATransfer) {
  ProgressDisplay display = Display(false);
  display.StartTransfer("uploading", "w");
  now_ += absl::Seconds(1);
  display.OnTransfer({512, 1024});
  display.OnTransfer({1024, 1024});
  EXPECT_EQ(err_.str(), "");
  display.EndTransfer();
  EXPECT_EQ(err_.str(), "uploading w  1.0 KiB in 1.0 s  1.0 KiB/s\n");
}

}  // namespace
}  // namespace sparsefw::cli
