// The output of the program: the result as text and as JSON, exit codes, numbers.
#include <gmock/gmock.h>

#include <limits>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/job_list.h"
#include "client/cpp/cli/output/result.h"
#include "client/cpp/cli/output/result_text.h"
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
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_spec()->set_method(v1::METHOD_SPARSEFW);
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
  result.mutable_losses()->set_mask(150.5);
  result.mutable_losses()->set_lower_bound(140);
  result.set_relative_reduction(0.2475);
  result.set_iterations(2000);
  result.set_stop_reason(v1::STOP_REASON_DEADLINE);
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
  EXPECT_THAT(
      Keys(json),
      ElementsAre("job", "state", "method", "preset", "preset_overrides", "pattern", "shrinkage",
                  "shape", "loss", "certificate", "sparsity", "kept", "losses",
                  "relative_reduction", "iterations", "stop_reason", "candidate", "device",
                  "timings", "swaps", "drift", "damping", "joint", "screening", "attempts"));
  EXPECT_THAT(Keys(json["losses"]), ElementsAre("full", "warm_start", "relaxed", "rounded", "final",
                                                "lower_bound", "reconstructed", "unshrunk"));
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

TEST(ResultTest, JsonBeginsWithWhatEveryClientSays) {
  v1::Job job = SucceededJob();
  const auto json = ResultJson(job, {});
  EXPECT_DOUBLE_EQ(json["loss"].get<double>(), 0.1505);
  EXPECT_DOUBLE_EQ(json["certificate"].get<double>(), 140 / 150.5);
  EXPECT_DOUBLE_EQ(json["sparsity"].get<double>(), 0.6);
  // New weights are what the loss is of, and with a shrinkage it is that with G itself.
  v1::Losses& losses = *job.mutable_result()->mutable_losses();
  losses.set_reconstructed(50);
  EXPECT_DOUBLE_EQ(ResultJson(job, {})["loss"].get<double>(), 0.05);
  losses.mutable_unshrunk()->set_full(900);
  losses.mutable_unshrunk()->set_warm_start(180);
  losses.mutable_unshrunk()->set_result(90);
  EXPECT_DOUBLE_EQ(ResultJson(job, {})["loss"].get<double>(), 0.1);
  losses.clear_reconstructed();
  const std::string text = ResultText(job, {}, {});
  EXPECT_THAT(text, HasSubstr("loss           10.000 %  |WX - (M*W)X|^2 / |WX|^2"));
  EXPECT_THAT(text, HasSubstr("reduction      50.000 %  below the warm start (wanda, 20.000 %)"));
  EXPECT_THAT(text, HasSubstr("fixed weights: 14.000 % of 15.050 % (G shrunk)"));
  losses.set_lower_bound(0);
  EXPECT_TRUE(ResultJson(job, {})["certificate"].is_null());
}

TEST(ResultTest, ThePresetIsSaidWhereThereIsOne) {
  v1::Job job = SucceededJob();
  EXPECT_TRUE(ResultJson(job, {})["preset"].is_null());
  EXPECT_THAT(ResultText(job, {}, {}), Not(HasSubstr("preset")));
  job.mutable_spec()->set_preset(v1::PRESET_BALANCED);
  EXPECT_EQ(ResultJson(job, {})["preset"], "balanced");
  EXPECT_THAT(ResultText(job, {}, {}), HasSubstr("\npreset       balanced\nmethod "));
  job.add_preset_overrides("method");
  job.add_preset_overrides("alpha");
  EXPECT_EQ(ResultJson(job, {})["preset_overrides"],
            nlohmann::ordered_json::array({"method", "alpha"}));
  EXPECT_THAT(ResultText(job, {}, {}),
              HasSubstr("\npreset       balanced; overridden by: method, alpha\nmethod "));
}

TEST(ListTest, HasAHeaderLossesInPerCentAndLabels) {
  v1::Job done = SucceededJob();
  (*done.mutable_spec()->mutable_labels())["layer"] = "2.query";
  (*done.mutable_spec()->mutable_labels())["b"] = "\x1b[2J";
  (*done.mutable_spec()->mutable_labels())["sparsefw-cli.inputs"] = "delete";
  v1::Job waiting;
  waiting.set_name("jobs/12345");
  waiting.set_state(v1::JOB_STATE_QUEUED);
  waiting.set_queue_position(3);
  waiting.mutable_create_time()->set_seconds(108);
  waiting.mutable_spec()->set_method(v1::METHOD_ALPS);
  waiting.mutable_spec()->mutable_pattern()->mutable_nm()->set_keep(2);
  waiting.mutable_spec()->mutable_pattern()->mutable_nm()->set_group(4);
  EXPECT_EQ(ListText({waiting, done}, absl::FromUnixSeconds(110)),
            "job         state      method    pattern  shape  loss      submitted   labels\n"
            "jobs/12345  QUEUED     alps      2:4      -      3 ahead   2.0 s ago\n"
            "jobs/7      SUCCEEDED  sparsefw  per-row  10x20  15.050 %  10.0 s ago  "
            "b=\\x1b[2J layer=2.query\n");
}

TEST(ResultTest, SaysWhatWasScreened) {
  v1::Job job = SucceededJob();
  EXPECT_TRUE(ResultJson(job, {})["screening"].is_null());
  v1::Screening& screening = *job.mutable_result()->mutable_screening();
  screening.set_epochs(11);
  screening.set_iterations(1943);
  screening.set_active_share(0.0425);
  EXPECT_EQ(ResultJson(job, {})["screening"]["epochs"], 11);
  EXPECT_EQ(ResultJson(job, {})["screening"]["iterations"], 1943);
  EXPECT_EQ(ResultJson(job, {})["screening"]["active_share"], 0.0425);
  EXPECT_THAT(ResultText(job, {}, {}), HasSubstr("1943 screened (4.2% of the weights)"));
}

TEST(ResultTest, JsonOfAFetchHasTheServersTotalAndNoUpload) {
  const auto json = ResultJson(SucceededJob(), {});
  EXPECT_TRUE(json["timings"]["upload_s"].is_null());
  EXPECT_EQ(json["timings"]["total_s"], 4.0);
}

TEST(ResultTest, WhatIsNotThereIsNullAndTheKeysStay) {
  v1::Job job;
  job.set_name("jobs/8");
  job.set_state(v1::JOB_STATE_FAILED);
  const auto json = ResultJson(job, {});
  EXPECT_EQ(Keys(json).size(), 25u);
  for (const char* key : {"loss", "certificate", "sparsity", "kept", "losses", "relative_reduction",
                          "iterations", "stop_reason", "candidate", "device"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  v1::Job infinite = SucceededJob();
  infinite.mutable_result()->mutable_losses()->set_lower_bound(
      -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(ResultJson(infinite, {})["losses"]["lower_bound"].is_null());
}

TEST(ResultTest, TextBeginsWithTheLossInPerCent) {
  v1::Job job = SucceededJob();
  job.mutable_spec()->mutable_sparsefw()->set_alpha(0.9);
  OutputOptions output;
  output.out = "m.safetensors";
  EXPECT_EQ(ResultText(job, ClientTimes{absl::Seconds(2), std::nullopt}, output),
            "loss           15.050 %  |WX - (M*W)X|^2 / |WX|^2; output energy kept: 84.950 %\n"
            "reduction      24.750 %  below the warm start (wanda, 20.000 %); "
            "best mask: a rounded iterate\n"
            "certificate    93.023 %  unavoidable with these fixed weights: 14.000 % of 15.050 %\n"
            "sparsity       60.000 %  120 of 200 weights removed; 80 kept\n"
            "\n"
            "job          jobs/7, SUCCEEDED\n"
            "layer        [10, 20], per-row, 60.0 % to remove\n"
            "method       sparsefw, alpha 0.9, 2000 iterations (stopped by the deadline), "
            "drift 0.0e+00\n"
            "losses       full 1000, warm start 200, relaxed 150\n"
            "             rounded 155, final 150.5, lower bound 140\n"
            "device       cpu\n"
            "time         4.0 s: upload 2.0 s, queue 0.25 s, solve 3.0 s\n"
            "mask         m.safetensors\n");
}

TEST(ResultTest, TextSaysWhatTheMethodHas) {
  // A one-shot method has no iterations and no warm start to beat.
  v1::Job wanda = SucceededJob();
  wanda.mutable_spec()->set_method(v1::METHOD_WANDA);
  EXPECT_THAT(ResultText(wanda, {}, {}), Not(HasSubstr("iterations")));
  EXPECT_THAT(ResultText(wanda, {}, {}), Not(HasSubstr("warm start")));
  EXPECT_THAT(ResultText(wanda, {}, {}), HasSubstr("sparsefw-cli fetch jobs/7 --out FILE\n"));
  // With swaps it has one: its own mask. SparseGPT is compared with one.
  wanda.mutable_spec()->mutable_refine()->set_swaps(true);
  wanda.mutable_result()->set_swaps(12);
  wanda.mutable_result()->set_candidate(v1::CANDIDATE_REFINED);
  EXPECT_THAT(ResultText(wanda, {}, {}),
              HasSubstr("below the warm start (wanda, 20.000 %); best mask: refined by swaps\n"));
  EXPECT_THAT(ResultText(wanda, {}, {}), HasSubstr("swaps        12\n"));
  v1::Job sparsegpt = SucceededJob();
  sparsegpt.mutable_spec()->set_method(v1::METHOD_SPARSEGPT);
  sparsegpt.mutable_spec()->mutable_warm_start()->set_method(v1::METHOD_RIA);
  sparsegpt.mutable_result()->mutable_losses()->set_reconstructed(90);
  EXPECT_THAT(
      ResultText(sparsegpt, {}, {}),
      HasSubstr("loss            9.000 %  |WX - W'X|^2 / |WX|^2 with the updated weights W'; "
                "mask alone 15.050 %\n"));
  EXPECT_THAT(ResultText(sparsegpt, {}, {}),
              HasSubstr("below the warm start (ria, 20.000 %); with the updated weights\n"));
}

TEST(ResultTest, TheJointSearchIsComparedWithItsStart) {
  v1::Job job = SucceededJob();
  job.mutable_spec()->set_method(v1::METHOD_WANDA);
  EXPECT_TRUE(ResultJson(job, {})["joint"].is_null());
  v1::JointOutcome& joint = *job.mutable_result()->mutable_joint();
  joint.set_start_loss(60);
  joint.set_reduction(0.5);
  joint.set_exchanges(321);
  joint.set_converged(true);
  job.mutable_result()->mutable_losses()->set_reconstructed(30);
  EXPECT_THAT(ResultText(job, {}, {}),
              HasSubstr("joint        321 exchanges; 50.000 % below the 6.000 % of its start with "
                        "the weights solved\n"));
  EXPECT_THAT(ResultText(job, {}, {}),
              HasSubstr("below the warm start (wanda, 20.000 %); with the updated weights\n"));
  const auto json = ResultJson(job, {})["joint"];
  EXPECT_THAT(Keys(json), ElementsAre("start_loss", "reduction", "exchanges", "converged"));
  EXPECT_EQ(json["exchanges"], 321);
  EXPECT_EQ(json["converged"], true);
  joint.set_converged(false);
  EXPECT_THAT(ResultText(job, {}, {}), HasSubstr("321 exchanges (cut short);"));
}

TEST(ResultTest, TextWithoutACertificateOrOfAZeroLayer) {
  v1::Job job = SucceededJob();
  job.mutable_result()->mutable_losses()->set_lower_bound(0);
  EXPECT_THAT(ResultText(job, {}, {}), HasSubstr("certificate  none: the lower bound is 0"));
  *job.mutable_result()->mutable_losses() = v1::Losses();
  EXPECT_THAT(ResultText(job, {}, {}),
              HasSubstr("loss         0; |WX|^2 is 0: weight or activations are only zeros, so no "
                        "mask is better than another\n"));
  EXPECT_THAT(ResultText(job, {}, {}), Not(HasSubstr("nan")));
}

TEST(ResultTest, ASweepIsATable) {
  v1::Job job = SucceededJob();
  for (const double alpha : {0.0, 0.75}) {
    v1::SweepOutcome& outcome = *job.mutable_result()->add_sweep();
    outcome.mutable_point()->set_method(v1::METHOD_SPARSEFW);
    outcome.mutable_point()->set_alpha(alpha);
    outcome.mutable_point()->mutable_pattern()->mutable_per_row()->set_sparsity(0.6);
    outcome.mutable_result()->mutable_losses()->set_full(1000);
    outcome.mutable_result()->mutable_losses()->set_mask(alpha > 0 ? 150.5 : 90);
    outcome.mutable_result()->set_relative_reduction(0.25);
    if (alpha > 0) outcome.set_loss_with_new_weights(40);
  }
  v1::SweepOutcome& failed = *job.mutable_result()->add_sweep();
  failed.mutable_point()->set_method(v1::METHOD_SPARSEGPT);
  failed.mutable_point()->mutable_pattern()->mutable_nm()->set_keep(2);
  failed.mutable_point()->mutable_pattern()->mutable_nm()->set_group(4);
  failed.mutable_error()->set_message("G is not positive definite");
  EXPECT_THAT(ResultText(job, {}, {}),
              HasSubstr("\n point method    pattern removed alpha then     loss  new W' bound "
                        "reduction\n"
                        "*0     sparsefw  per-row  60.0 %     0 -     9.000 %       -     -    "
                        "25.0 %\n"
                        " 1     sparsefw  per-row  60.0 %  0.75 -    15.050 % 4.000 %     -    "
                        "25.0 %\n"
                        " 2     sparsegpt 2:4      50.0 %     - -     failed: G is not "
                        "positive definite\n"));
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

TEST(ResultTest, ALossOfNewWeightsIsSaidToBeOne) {
  v1::Job job = SucceededJob();
  EXPECT_EQ(ResultMetadata(job).at("loss_of"), "mask");
  EXPECT_EQ(WeightsWithoutFile(job, {}), "");
  v1::Losses& losses = *job.mutable_result()->mutable_losses();
  losses.set_reconstructed(40);
  EXPECT_EQ(ResultMetadata(job).at("loss_of"), "new weights");
  OutputOptions output;
  EXPECT_THAT(WeightsWithoutFile(job, output), ::testing::EndsWith("mask alone loses 15.050 %"));
  // The mask's loss with G itself is not known where the job has shrunk it.
  losses.mutable_unshrunk()->set_full(1100);
  EXPECT_THAT(WeightsWithoutFile(job, output), ::testing::EndsWith("loses 15.050 % (G shrunk)"));
  losses.set_full(0);
  EXPECT_THAT(WeightsWithoutFile(job, output), ::testing::EndsWith("in no file"));
  output.out_weights = "w";
  EXPECT_EQ(WeightsWithoutFile(job, output), "");
}

TEST(ResultTest, OutcomesAreExitCodes) {
  v1::Job job = SucceededJob();
  SPARSEFW_EXPECT_OK(JobOutcome(job));
  job.set_state(v1::JOB_STATE_CANCELLED);  // with the best mask so far
  SPARSEFW_EXPECT_OK(JobOutcome(job));
  job.clear_result();
  EXPECT_EQ(ExitCodeOf(JobOutcome(job)), ExitCode::kNoMask);
  job.set_state(v1::JOB_STATE_FAILED);
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
  EXPECT_EQ(ExitCodeOf(absl::UnauthenticatedError("who")), ExitCode::kCredentials);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("no")), ExitCode::kCredentials);
  EXPECT_EQ(ExitCodeOf(FileError(absl::PermissionDeniedError("a file"))), ExitCode::kUsage);
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

TEST(AttemptsTest, AreShownOfJobsThatARestartHasInterrupted) {
  v1::Job job = SucceededJob();
  job.set_attempts(1);
  EXPECT_EQ(ResultJson(job, {})["attempts"], 1);
  EXPECT_EQ(StatusJson(job)["attempts"], 1);
  EXPECT_THAT(ResultText(job, {}, {}), Not(HasSubstr("attempt")));
  EXPECT_THAT(FormatState(job), Not(HasSubstr("attempt")));
  const auto of_one = ResultMetadata(job);
  job.set_attempts(3);
  EXPECT_EQ(StatusJson(job)["attempts"], 3);
  EXPECT_THAT(ResultText(job, {}, {}), HasSubstr("attempts     3; the server ended"));
  EXPECT_THAT(FormatState(job), HasSubstr("succeeded, attempt 3"));
  EXPECT_EQ(ResultMetadata(job), of_one) << "the file of the mask is the same";
  job.set_state(v1::JOB_STATE_RUNNING);
  job.clear_result();
  EXPECT_THAT(StatusText(job), HasSubstr("attempts     3; the server ended"));
}

}  // namespace
}  // namespace sparsefw::cli
