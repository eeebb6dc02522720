#include "sparsefw/status_reason.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace sparsefw {
namespace {

TEST(StatusReasonTest, CarriesReasonAndMetadata) {
  const absl::Status status = WithReason(absl::FailedPreconditionError("a gap"), "OFFSET_GAP",
                                         {{"committed_size", "4096"}, {"expression", "a=b"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "a gap");
  EXPECT_EQ(ReasonOf(status), "OFFSET_GAP");
  EXPECT_EQ(ReasonMetadataOf(status),
            (ReasonMetadata{{"committed_size", "4096"}, {"expression", "a=b"}}));
}

TEST(StatusReasonTest, TheLastReasonWins) {
  const absl::Status status =
      WithReason(WithReason(absl::InternalError("x"), "FIRST", {{"a", "1"}}), "SECOND");
  EXPECT_EQ(ReasonOf(status), "SECOND");
  EXPECT_TRUE(ReasonMetadataOf(status).empty());
}

TEST(StatusReasonTest, NothingWhereThereIsNone) {
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), "");
  EXPECT_TRUE(ReasonMetadataOf(absl::InternalError("x")).empty());
  EXPECT_TRUE(WithReason(absl::OkStatus(), "NEVER").ok());
  EXPECT_EQ(ReasonOf(WithReason(absl::OkStatus(), "NEVER")), "");
}

TEST(StatusReasonTest, AnEmptyValueIsKept) {
  EXPECT_EQ(ReasonMetadataOf(WithReason(absl::InternalError("x"), "R", {{"key", ""}})),
            (ReasonMetadata{{"key", ""}}));
}

}  // namespace
}  // namespace sparsefw
