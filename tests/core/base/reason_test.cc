#include "sparsefw/reason.h"

#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace sparsefw {
namespace {

TEST(ReasonTest, CarriesReasonAndMetadata) {
  const absl::Status status = WithReason(absl::FailedPreconditionError("a gap"), "OFFSET_GAP",
                                         {{"committed_size", "4096"}, {"expression", "a=b"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "a gap");
  EXPECT_EQ(ReasonOf(status), "OFFSET_GAP");
  EXPECT_EQ(ReasonMetadataOf(status),
            (ReasonMetadata{{"committed_size", "4096"}, {"expression", "a=b"}}));
}

// A client chooses the values: names of tensors, for one.
TEST(ReasonTest, ALineBreakMakesNoEntryOfItsOwn) {
  const absl::Status status = WithReason(absl::InternalError("x"), "SPEC_INVALID",
                                         {{"field", "weight"}, {"tensor", "a\nfield=gram"}});
  EXPECT_EQ(ReasonMetadataOf(status),
            (ReasonMetadata{{"field", "weight"}, {"tensor", "a field=gram"}}));
}

TEST(ReasonTest, TheLastReasonWins) {
  const absl::Status status =
      WithReason(WithReason(absl::InternalError("x"), "OFFSET_GAP", {{"a", "1"}}), "SPEC_INVALID");
  EXPECT_EQ(ReasonOf(status), "SPEC_INVALID");
  EXPECT_TRUE(ReasonMetadataOf(status).empty());
}

TEST(ReasonTest, NothingWhereThereIsNone) {
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), "");
  EXPECT_TRUE(ReasonMetadataOf(absl::InternalError("x")).empty());
  EXPECT_TRUE(WithReason(absl::OkStatus(), "SPEC_INVALID").ok());
  EXPECT_EQ(ReasonOf(WithReason(absl::OkStatus(), "SPEC_INVALID")), "");
}

TEST(ReasonTest, TheListHasEveryReasonOnce) {
  std::set<std::string_view> names;
  for (const ReasonInfo& reason : kReasons) {
    EXPECT_TRUE(names.insert(reason.name).second) << reason.name;
    EXPECT_EQ(FindReason(reason.name), &reason);
  }
  EXPECT_EQ(FindReason("NEVER_HEARD_OF"), nullptr);
  EXPECT_FALSE((std::is_constructible_v<Reason, std::string>)) << "only literals of the list are";
}

TEST(ReasonTest, AReasonFromElsewhereIsKeptAsItIs) {
  const absl::Status status = WithReasonText(absl::InternalError("x"), "NEVER_HEARD_OF");
  EXPECT_EQ(ReasonOf(status), "NEVER_HEARD_OF");
  EXPECT_FALSE(HasReason(status, "SPEC_INVALID"));
  EXPECT_TRUE(HasReason(WithReason(status, "SPEC_INVALID"), "SPEC_INVALID"));
}

TEST(ReasonTest, AnEmptyValueIsKept) {
  EXPECT_EQ(ReasonMetadataOf(WithReason(absl::InternalError("x"), "SPEC_INVALID", {{"key", ""}})),
            (ReasonMetadata{{"key", ""}}));
}

}  // namespace
}  // namespace sparsefw
