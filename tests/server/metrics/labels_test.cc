#include "server/metrics/labels.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// The protocol is the truth: an RPC that is added there must be counted by name.
TEST(LabelsTest, RpcMethodsAreThoseOfTheProtocol) {
  std::set<std::string> declared;
  const std::filesystem::path protos = SPARSEFW_SOURCE_DIR "/proto/sparsefw/v1";
  for (const auto& file : std::filesystem::directory_iterator(protos)) {
    std::ifstream stream(file.path());
    std::string service;
    for (std::string line; std::getline(stream, line);) {
      std::istringstream words(line);
      std::string keyword;
      std::string name;
      words >> keyword >> name;
      if (keyword == "service") service = name;
      if (keyword == "rpc") declared.insert(service + "/" + name.substr(0, name.find('(')));
    }
  }
  std::set<std::string> known(kRpcMethods.begin(), kRpcMethods.end() - 1);
  EXPECT_EQ(known, declared);
  EXPECT_EQ(kRpcMethods.back(), kOther);
}

TEST(LabelsTest, UnknownValuesAreOther) {
  EXPECT_EQ(kRpcMethods[RpcMethodIndex("PruneService/GetJob")], "PruneService/GetJob");
  EXPECT_EQ(kRpcMethods[RpcMethodIndex("/sparsefw.v1.PruneService/GetJob")], kOther);
  EXPECT_EQ(kRpcMethods[RpcMethodIndex("")], kOther);
  EXPECT_EQ(CodeName(absl::StatusCode::kDataLoss), "DATA_LOSS");
  EXPECT_EQ(CodeName(static_cast<absl::StatusCode>(99)), "UNKNOWN");
  EXPECT_EQ(ReasonLabel("OFFSET_GAP"), "OFFSET_GAP");
  EXPECT_EQ(ReasonLabel("jobs/17"), kOther);
  EXPECT_EQ(ReasonLabel("PAGE_SIZE_INVALID"), kOther) << "no series of its own";
  EXPECT_EQ(DeviceLabel("cuda:3"), "cuda");
  EXPECT_EQ(DeviceLabel("cpu"), "cpu");
  EXPECT_EQ(DeviceLabel("tpu"), kOther);
  EXPECT_EQ(DeviceLabel(""), kOther);
}

TEST(LabelsTest, EndReasonsNameTheStopOrTheFailure) {
  Job job;
  job.state = JobState::kSucceeded;
  job.result.emplace();
  job.result->solve.stop_cause = StopCause::kGap;
  EXPECT_EQ(EndReasonLabel(job), "GAP");
  job.result->solve.stop_cause = StopCause::kDeadline;
  EXPECT_EQ(EndReasonLabel(job), "DEADLINE");
  job.result->solve.stop_cause = StopCause::kIterations;
  EXPECT_EQ(EndReasonLabel(job), "ITERATIONS");
  job.state = JobState::kCancelled;
  EXPECT_EQ(EndReasonLabel(job), "CANCELLED");
  job.result.reset();
  EXPECT_EQ(EndReasonLabel(job), "CANCELLED");
  job.state = JobState::kFailed;
  job.error = WithReason(absl::InvalidArgumentError("nan"), "NON_FINITE");
  EXPECT_EQ(EndReasonLabel(job), "NON_FINITE");
  job.error = WithReasonText(absl::InternalError("what"), "NEVER_HEARD_OF");
  EXPECT_EQ(EndReasonLabel(job), "INTERNAL");
  job.error = absl::ResourceExhaustedError("full");
  EXPECT_EQ(EndReasonLabel(job), "RESOURCE_EXHAUSTED");
}

}  // namespace
}  // namespace sparsefw::server
