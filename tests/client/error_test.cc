#include "sparsefw/client/error.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "sparsefw/reason.h"
#include "tests/client/fake_server.h"
#include "tests/testing/matchers.h"

namespace sparsefw::client {
namespace {

using ::sparsefw::testing::StatusIs;
using testing::Error;

TEST(ErrorTest, CarriesCodeMessageReasonAndMetadata) {
  const absl::Status status = StatusFromGrpc(
      Error(grpc::FAILED_PRECONDITION, "a gap", "OFFSET_GAP", {{"committed_size", "4096"}}));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, "OFFSET_GAP", "a gap"));
  EXPECT_EQ(ReasonMetadataOf(status).at("committed_size"), "4096");
  EXPECT_EQ(RetryDelayOf(status), std::nullopt);
}

TEST(ErrorTest, EveryCodeStaysItself) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status(static_cast<grpc::StatusCode>(code), "text");
    EXPECT_EQ(static_cast<int>(StatusFromGrpc(status).code()), code);
  }
}

TEST(ErrorTest, HostileDetailsDoNotBreakTheStatus) {
  const grpc::Status garbage(grpc::INTERNAL, "text", "\xff\xff not a message");
  EXPECT_THAT(StatusFromGrpc(garbage), StatusIs(absl::StatusCode::kInternal, "", "text"));
  const absl::Status status =
      StatusFromGrpc(Error(grpc::INTERNAL, "text", "A\nB", {{"a=b", "1"}, {"key", "two\nlines"}}));
  EXPECT_EQ(ReasonOf(status), "A B");
  EXPECT_EQ(ReasonMetadataOf(status), (ReasonMetadata{{"key", "two lines"}}));
}

TEST(ErrorTest, MessagesOfServersCannotSteerATerminal) {
  const std::string text = "\x1b]0;owned\a\nFAKE \xff";
  const std::string printable = "\\x1b]0;owned\\x07\\nFAKE \\xff";
  EXPECT_EQ(StatusFromGrpc(grpc::Status(grpc::INTERNAL, text)).message(), printable);
  google::rpc::Status proto;
  proto.set_code(3);
  proto.set_message(text);
  EXPECT_EQ(StatusFromProto(proto).message(), printable);
}

TEST(ErrorTest, OnlyWhatMayHealByItselfIsTransient) {
  EXPECT_TRUE(IsTransient(StatusFromGrpc(grpc::Status(grpc::UNAVAILABLE, "Socket closed"))));
  EXPECT_TRUE(IsTransient(
      StatusFromGrpc(grpc::Status(grpc::INTERNAL, "Received RST_STREAM with error code 2"))));
  // As from a server that is being shut down.
  EXPECT_TRUE(IsTransient(StatusFromGrpc(grpc::Status(grpc::CANCELLED, "CANCELLED"))));
  EXPECT_FALSE(IsTransient(StatusFromGrpc(Error(grpc::CANCELLED, "stopped", "JOB_CANCELLED"))));
  EXPECT_FALSE(
      IsTransient(StatusFromGrpc(Error(grpc::INTERNAL, "a bug near RST_STREAM", "SOLVER"))));
  EXPECT_FALSE(
      IsTransient(StatusFromGrpc(Error(grpc::RESOURCE_EXHAUSTED, "never", "TENSOR_TOO_LARGE"))));
  const absl::Status full =
      StatusFromGrpc(Error(grpc::RESOURCE_EXHAUSTED, "full", "QUEUE_FULL", {}, 1500));
  EXPECT_TRUE(IsTransient(full));
  EXPECT_EQ(RetryDelayOf(full), absl::Milliseconds(1500));
  EXPECT_FALSE(IsTransient(StatusFromGrpc(grpc::Status(grpc::INVALID_ARGUMENT, "x"))));
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

TEST(ErrorTest, AJobsErrorIsAStatus) {
  google::rpc::Status proto;
  EXPECT_TRUE(StatusFromProto(proto).ok());
  proto.set_code(9);
  proto.set_message("the device is gone");
  google::rpc::ErrorInfo info;
  info.set_reason("DEVICE_LOST");
  proto.add_details()->PackFrom(info);
  EXPECT_THAT(StatusFromProto(proto),
              StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_LOST", "the device is gone"));
}

TEST(ErrorTest, WithMessageKeepsTheRest) {
  const absl::Status full =
      StatusFromGrpc(Error(grpc::RESOURCE_EXHAUSTED, "full", "QUEUE_FULL", {{"limit", "5"}}, 10));
  const absl::Status other = WithMessage(full, "layer.safetensors: full");
  EXPECT_THAT(other, StatusIs(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                              "layer.safetensors: full"));
  EXPECT_EQ(RetryDelayOf(other), absl::Milliseconds(10));
  EXPECT_EQ(ReasonMetadataOf(other).at("limit"), "5");
}

}  // namespace
}  // namespace sparsefw::client
