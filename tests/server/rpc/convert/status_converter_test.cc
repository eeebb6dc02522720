#include "server/rpc/convert/status_converter.h"

#include <string>

#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(StatusConverterTest, OkHasNoDetails) {
  const grpc::Status status = ToGrpcStatus(absl::OkStatus());
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(status.error_details().empty());
}

TEST(StatusConverterTest, CarriesCodeMessageReasonAndMetadata) {
  const grpc::Status status = ToGrpcStatus(WithReason(absl::FailedPreconditionError("a gap"),
                                                      "OFFSET_GAP", {{"committed_size", "4096"}}));
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "a gap");
  const google::rpc::Status details = Details(status);
  EXPECT_EQ(details.code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(details.message(), "a gap");
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "OFFSET_GAP");
  EXPECT_EQ(info.domain(), "sparsefw");
  EXPECT_EQ(info.metadata().at("committed_size"), "4096");
}

TEST(StatusConverterTest, RetryDelayBecomesRetryInfo) {
  const google::rpc::Status details = Details(ToGrpcStatus(
      WithReason(absl::UnavailableError("later"), "QUEUE_FULL", {{"retry_delay_ms", "1500"}})));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

TEST(StatusConverterTest, AReasonlessStatusIsNamedAfterItsCode) {
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Details(ToGrpcStatus(absl::InternalError("oops"))).details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "INTERNAL");
}

TEST(StatusConverterTest, LongMessagesAreCutOnACharacter) {
  std::string message = "x";
  while (message.size() < 3000) message += "\xC3\xA9";  // two bytes a character
  const std::string cut = ToGrpcStatus(absl::InternalError(message)).error_message();
  EXPECT_LE(cut.size(), 1024U);
  EXPECT_GE(cut.size(), 1020U);
  EXPECT_EQ(cut.substr(cut.size() - 3), "...");
  EXPECT_EQ((cut.size() - 3) % 2, 1U) << "half a character";

  const std::string fits(1024, 'y');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(fits)).error_message(), fits);
}

}  // namespace
}  // namespace sparsefw::server
