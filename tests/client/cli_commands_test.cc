// Whole commands over a fake server: what they send, print, write and leave.
#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/session.h"
#include "google/rpc/error_details.pb.h"
#include "nlohmann/json.hpp"
#include "sparsefw/client/tensor_spec.h"
#include "sparsefw/mask.h"
#include "sparsefw/safetensors.h"
#include "tests/client/fake_server.h"
#include "tests/testing/matchers.h"

namespace sparsefw::cli {
namespace {

using client::testing::Error;
using ::sparsefw::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kNoWeights[] =
    "sparsefw-cli: --out-weights is not given: the loss is that of new weights, which are in no "
    "file; the mask alone loses 8.000 %\n";

class CommandsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 3;
  static constexpr int64_t kCols = 4;

  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "cli_commands_test";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("w", {"layer", DType::kF32, {kRows, kCols}, weight_});
    Write("g", {"gram", DType::kF32, {kCols, kCols}, gram_});
    options_.common.server = server_.address();
    options_.common.retry_for = absl::Seconds(5);
    options_.weights = Path("w");
    options_.gram = Path("g");
    options_.output.out = Path("mask");
    options_.spec.set_method(v1::METHOD_WANDA);
    options_.spec.mutable_pattern()->mutable_nm()->set_keep(2);
    options_.spec.mutable_pattern()->mutable_nm()->set_group(4);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void Write(const std::string& name, const SafetensorsTensor& tensor) {
    SPARSEFW_ASSERT_OK(WriteSafetensors(Path(name), std::span(&tensor, 1), {}));
  }

  // The job that the first CreateJob makes ends like this.
  v1::Job& WillEnd(v1::JobState state) {
    v1::JobEvent event;
    event.set_kind(v1::JobEvent::KIND_SNAPSHOT);
    v1::Job& job = *event.mutable_job();
    job.set_name("jobs/1");
    job.set_state(state);
    job.set_revision(3);
    job.add_shape(kRows);
    job.add_shape(kCols);
    *job.mutable_spec() = options_.spec;
    server_.jobs.watches.push_back({{event}, grpc::Status::OK});
    return *server_.jobs.watches.back().events[0].mutable_job();
  }
  void GiveMask(v1::Job& job) {
    Mask mask(kRows, kCols);
    for (int64_t row = 0; row < kRows; ++row) {
      mask.Set(row, 0, true);
      mask.Set(row, row + 1, true);
    }
    const std::string bytes(reinterpret_cast<const char*>(mask.bytes().data()),
                            mask.bytes().size());
    job.mutable_result()->set_mask(server_.tensors.Put(client::MaskSpec(kRows, kCols), bytes));
    job.mutable_result()->set_kept_count(6);
  }

  void GiveLossOfNewWeights(v1::Job& job) {
    GiveMask(job);
    job.mutable_result()->mutable_losses()->set_full(1000);
    job.mutable_result()->mutable_losses()->set_mask(80);
    job.mutable_result()->mutable_losses()->set_reconstructed(30);
  }

  absl::Status Submit() { return cli::Run(options_, Console{out_, err_}); }

  client::testing::FakeServer server_;
  std::filesystem::path folder_;
  const std::vector<std::byte> weight_ = std::vector<std::byte>(kRows * kCols * 4, std::byte{1});
  const std::vector<std::byte> gram_ = std::vector<std::byte>(kCols * kCols * 4, std::byte{2});
  SubmitOptions options_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(CommandsTest, SubmitAsksForTheOptionsBeforeItUploads) {
  server_.jobs.check_status =
      Error(grpc::INVALID_ARGUMENT, "alpha must be in [0, 1]; got alpha=2", "OPTION_INVALID");
  const absl::Status status = Submit();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "OPTION_INVALID", "alpha=2"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_TRUE(server_.tensors.create_request_ids.empty()) << "nothing was uploaded";
  EXPECT_TRUE(server_.jobs.created.empty());
  ASSERT_EQ(server_.jobs.checked.size(), 1u);
  const v1::CheckJobOptionsRequest& asked = server_.jobs.checked[0];
  EXPECT_EQ(asked.spec().method(), v1::METHOD_WANDA);
  EXPECT_THAT(asked.weight().dims(), ElementsAre(kRows, kCols));
  EXPECT_THAT(asked.gram().dims(), ElementsAre(kCols, kCols));
  EXPECT_FALSE(asked.has_activations());
}

TEST_F(CommandsTest, SubmitNamesTheFileThatACheckRefuses) {
  server_.jobs.check_status =
      Error(grpc::INVALID_ARGUMENT, "no good", "SHAPE_MISMATCH", {{"field", "gram"}});
  EXPECT_THAT(Submit(), StatusIs(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                                 Path("g") + ": no good"));
}

TEST_F(CommandsTest, SubmitGoesOnWhereAnOldServerCannotCheck) {
  server_.jobs.check_status = grpc::Status(grpc::UNIMPLEMENTED, "");
  GiveMask(WillEnd(v1::JOB_STATE_SUCCEEDED));
  SPARSEFW_EXPECT_OK(Submit());
  EXPECT_EQ(server_.jobs.created.size(), 1u);
}

TEST_F(CommandsTest, SubmitWritesTheMaskAndCleansUp) {
  GiveMask(WillEnd(v1::JOB_STATE_SUCCEEDED));
  options_.common.json = true;
  SPARSEFW_ASSERT_OK(Submit());
  const auto file = SafetensorsFile::Open(Path("mask"));
  SPARSEFW_ASSERT_OK(file);
  const auto mask = (*file)->Find("mask");
  SPARSEFW_ASSERT_OK(mask);
  EXPECT_EQ((*mask)->dtype_name, "BOOL");
  EXPECT_THAT((*mask)->shape, ElementsAre(kRows, kCols));
  EXPECT_EQ((*mask)->bytes[1], std::byte{1});
  EXPECT_EQ((*mask)->bytes[2], std::byte{0});
  EXPECT_EQ((*file)->metadata().at("kept"), "6");
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["kept"], 6);
  EXPECT_GE(json["timings"]["total_s"], json["timings"]["upload_s"]);
  EXPECT_THAT(err_.str(), HasSubstr("uploading"));
  // The inputs are gone; the job and its mask stay for a later fetch.
  const v1::JobSpec& sent = server_.jobs.created.back().spec();
  EXPECT_THAT(server_.tensors.deleted, UnorderedElementsAre(sent.weight(), sent.gram()));
  EXPECT_EQ(sent.labels().at("sparsefw-cli.weight"), "layer");
}

TEST_F(CommandsTest, KeepTensorsKeepsThem) {
  GiveMask(WillEnd(v1::JOB_STATE_SUCCEEDED));
  options_.output.keep_tensors = true;
  SPARSEFW_ASSERT_OK(Submit());
  EXPECT_TRUE(server_.tensors.deleted.empty());
  EXPECT_THAT(err_.str(), HasSubstr("kept tensors/"));
  EXPECT_THAT(out_.str(), HasSubstr("jobs/1, SUCCEEDED"));
}

// Unlike an old server's answer, which has no reason, this is a refusal.
TEST_F(CommandsTest, AnOptionThatTheServerLacksCostsNoUpload) {
  server_.jobs.check_status =
      Error(grpc::UNIMPLEMENTED, "swap refinement is not in this version", "UNIMPLEMENTED");
  const absl::Status status = Submit();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnimplemented, "UNIMPLEMENTED", "swap"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kServer);
  EXPECT_TRUE(server_.tensors.create_request_ids.empty());
}

TEST_F(CommandsTest, ARefusedTensorIsNamedByItsFile) {
  server_.jobs.create_faults = {Error(grpc::INVALID_ARGUMENT, "must be finite; got [0, 1]=nan",
                                      "NON_FINITE", {{"field", "weight"}})};
  const absl::Status status = Submit();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "NON_FINITE",
                               Path("w") + ": must be finite"));
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kServer);
  EXPECT_EQ(server_.tensors.deleted.size(), 2u);
}

TEST_F(CommandsTest, AFailedJobIsExitCodeFour) {
  v1::Job& job = WillEnd(v1::JOB_STATE_FAILED);
  job.mutable_error()->set_code(13);
  job.mutable_error()->set_message("the engine broke");
  const absl::Status status = Submit();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kJobFailed);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the engine broke"));
  EXPECT_FALSE(std::filesystem::exists(Path("mask")));
  EXPECT_EQ(server_.tensors.deleted.size(), 2u);
}

TEST_F(CommandsTest, ACancelledJobWithoutAMaskIsExitCodeFive) {
  WillEnd(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ExitCodeOf(Submit()), ExitCode::kNoMask);
  EXPECT_FALSE(std::filesystem::exists(Path("mask")));
}

TEST_F(CommandsTest, AMaskThatContradictsItsCountIsNotWritten) {
  v1::Job& job = WillEnd(v1::JOB_STATE_SUCCEEDED);
  GiveMask(job);
  job.mutable_result()->set_kept_count(7);
  const absl::Status status = Submit();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "", "6", "7"));
  EXPECT_FALSE(std::filesystem::exists(Path("mask")));
}

TEST_F(CommandsTest, DetachPrintsTheNameAndLeavesTheInputs) {
  options_.detach = true;
  options_.output.out.clear();
  SPARSEFW_ASSERT_OK(Submit());
  EXPECT_EQ(out_.str(), "jobs/1\n");
  EXPECT_TRUE(server_.tensors.deleted.empty());
  out_.str("");
  options_.common.json = true;
  SPARSEFW_ASSERT_OK(Submit());
  EXPECT_EQ(out_.str(), "{\"job\":\"jobs/2\"}\n");
}

TEST_F(CommandsTest, ALossOfWeightsThatNoFileHasIsAWarning) {
  GiveLossOfNewWeights(WillEnd(v1::JOB_STATE_SUCCEEDED));
  options_.common.json = true;
  SPARSEFW_ASSERT_OK(Submit());
  EXPECT_THAT(err_.str(), HasSubstr(kNoWeights));
  EXPECT_TRUE(nlohmann::json::accept(out_.str())) << out_.str();
}

TEST_F(CommandsTest, FetchWarnsOfALossOfWeightsThatNoFileHas) {
  options_.detach = true;
  options_.output.out.clear();
  SPARSEFW_ASSERT_OK(Submit());
  EXPECT_EQ(err_.str().find("--out-weights"), std::string::npos) << "a fetch may bring them";
  GiveLossOfNewWeights(WillEnd(v1::JOB_STATE_SUCCEEDED));
  FetchOptions fetch;
  fetch.common = options_.common;
  fetch.job = "jobs/1";
  fetch.output.out = Path("mask");
  SPARSEFW_ASSERT_OK(cli::Run(fetch, Console{out_, err_}));
  EXPECT_THAT(err_.str(), HasSubstr(kNoWeights));
}

TEST_F(CommandsTest, AGramThatTheSolveFindsIndefiniteIsNamedByItsFile) {
  v1::Job& job = WillEnd(v1::JOB_STATE_FAILED);
  job.mutable_error()->set_code(grpc::INVALID_ARGUMENT);
  job.mutable_error()->set_message("gram must be positive semi-definite");
  google::rpc::ErrorInfo info;
  info.set_reason("GRAM_NOT_POSITIVE_DEFINITE");
  job.mutable_error()->add_details()->PackFrom(info);
  const absl::Status status = Submit();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kJobFailed);
  EXPECT_THAT(std::string(status.message()),
              ::testing::StartsWith(Path("g") + ": jobs/1 failed: gram must be positive"));
}

TEST_F(CommandsTest, LocalMistakesNeedNoServer) {
  server_.Stop();
  options_.gram = Path("w");  // [3, 4] is no Gram of a layer with d_in = 4
  EXPECT_EQ(ExitCodeOf(Submit()), ExitCode::kUsage);
  options_.gram = Path("g");
  options_.output.out = Path("g");
  const absl::Status lost = Submit();
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kUsage);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("is an input"));
  options_.output.out = Path("no/mask");
  EXPECT_EQ(ExitCodeOf(Submit()), ExitCode::kUsage);
  options_.output.out = Path("mask");
  options_.common.server = "127.0.0.1";
  EXPECT_EQ(ExitCodeOf(Submit()), ExitCode::kUsage);
  HealthOptions health;
  health.common = options_.common;
  EXPECT_EQ(ExitCodeOf(cli::Run(health, Console{out_, err_})), ExitCode::kUsage);
}

TEST_F(CommandsTest, ATensorOfTheServerIsNamedAndNotUploaded) {
  GiveMask(WillEnd(v1::JOB_STATE_SUCCEEDED));
  options_.gram = "tensors/0123abcd";
  SPARSEFW_ASSERT_OK(Submit());
  const v1::JobSpec& sent = server_.jobs.created.back().spec();
  EXPECT_EQ(sent.gram(), "tensors/0123abcd");
  // Only what came with this job goes with it.
  EXPECT_THAT(server_.tensors.deleted, ElementsAre(sent.weight()));
  EXPECT_EQ(sent.labels().at("sparsefw-cli.uploaded"), sent.weight());
  EXPECT_FALSE(sent.labels().contains("sparsefw-cli.inputs"));
}

TEST_F(CommandsTest, FetchLeavesTensorsThatWereThereBefore) {
  options_.detach = true;
  options_.output.out.clear();
  options_.weights = "tensors/77";
  SPARSEFW_ASSERT_OK(Submit());
  options_.spec = server_.jobs.created.back().spec();
  EXPECT_EQ(options_.spec.weight(), "tensors/77");
  GiveMask(WillEnd(v1::JOB_STATE_SUCCEEDED));
  FetchOptions fetch;
  fetch.common = options_.common;
  fetch.job = "jobs/1";
  fetch.output.out = Path("mask");
  SPARSEFW_ASSERT_OK(cli::Run(fetch, Console{out_, err_}));
  EXPECT_THAT(server_.tensors.deleted, ElementsAre(options_.spec.gram()));
}

TEST_F(CommandsTest, DeleteWhoseAnswerIsLostDeletesTheInputsToo) {
  v1::Job& job = server_.jobs.jobs["jobs/7"];
  job.set_name("jobs/7");
  job.mutable_spec()->set_weight(server_.tensors.Put(v1::TensorSpec(), "weight"));
  (*job.mutable_spec()->mutable_labels())[kInputsLabel] = "delete";
  server_.jobs.lost_deletes = 1;
  DeleteOptions options;
  options.common = options_.common;
  options.job = "jobs/7";
  SPARSEFW_EXPECT_OK(cli::Run(options, Console{out_, err_}));
  EXPECT_EQ(out_.str(), "jobs/7 deleted\n");
  EXPECT_EQ(server_.tensors.left(), 0u);
}

TEST_F(CommandsTest, FetchDeletesTheInputsOfADetachedJob) {
  options_.detach = true;
  options_.output.out.clear();
  options_.spec.set_return_pruned_weight(true);
  SPARSEFW_ASSERT_OK(Submit());
  options_.spec = server_.jobs.created.back().spec();
  v1::Job& job = WillEnd(v1::JOB_STATE_SUCCEEDED);
  GiveMask(job);
  const std::string pruned(kRows * kCols * 4, '\x03');
  v1::TensorSpec spec = client::WeightSpec(DType::kF32, kRows, kCols);
  spec.set_kind(v1::TENSOR_KIND_PRUNED_WEIGHT);
  job.mutable_result()->set_pruned_weight(server_.tensors.Put(spec, pruned));
  FetchOptions fetch;
  fetch.common = options_.common;
  fetch.job = "jobs/1";
  fetch.output.out = Path("mask");
  fetch.output.out_weights = Path("pruned");
  SPARSEFW_ASSERT_OK(cli::Run(fetch, Console{out_, err_}));
  const auto file = SafetensorsFile::Open(Path("pruned"));
  SPARSEFW_ASSERT_OK(file);
  // Under its own name and dtype.
  ASSERT_EQ((*file)->entries().size(), 1u);
  EXPECT_EQ((*file)->entries()[0].name, "layer");
  EXPECT_EQ((*file)->entries()[0].dtype_name, "F32");
  EXPECT_EQ((*file)->entries()[0].bytes[0], std::byte{3});
  EXPECT_THAT(server_.tensors.deleted,
              UnorderedElementsAre(options_.spec.weight(), options_.spec.gram()));
}

TEST_F(CommandsTest, FetchSaysWhenThereIsNoPrunedWeight) {
  options_.detach = true;
  options_.output.out.clear();
  SPARSEFW_ASSERT_OK(Submit());
  FetchOptions fetch;
  fetch.common = options_.common;
  fetch.job = "jobs/1";
  fetch.output.out = Path("mask");
  fetch.output.out_weights = Path("pruned");
  const absl::Status status = cli::Run(fetch, Console{out_, err_});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--out-weights"));
}

TEST_F(CommandsTest, AnUnknownJobIsTheServersRefusal) {
  StatusOptions status;
  status.common = options_.common;
  status.job = "jobs/none";
  EXPECT_EQ(ExitCodeOf(cli::Run(status, Console{out_, err_})), ExitCode::kServer);
}

}  // namespace
}  // namespace sparsefw::cli
