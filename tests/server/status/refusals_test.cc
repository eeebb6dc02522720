#include "server/status/refusals.h"

#include <gmock/gmock.h>

#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(RefusalsTest, KeepsTheLastWithoutMessages) {
  Refusals refusals;
  const absl::Time start = absl::UnixEpoch();
  refusals.Ended("PruneService/GetJob", absl::OkStatus(), start);
  refusals.Ended("PruneService/GetJob", absl::CancelledError("gone"), start);
  EXPECT_THAT(refusals.Latest(), IsEmpty());
  const absl::Status full =
      Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "of tenant alice");
  refusals.Ended("PruneService/CreateJob", full, start);
  refusals.Ended("PruneService/CreateJob", full, start + absl::Seconds(1));
  refusals.Ended("PruneService/GetJob", absl::InternalError("x"), start);
  const std::vector<Refusal> latest = refusals.Latest();
  ASSERT_THAT(latest, SizeIs(2));
  EXPECT_EQ(latest[0].code, "INTERNAL");
  EXPECT_EQ(latest[1].reason, "QUEUE_FULL");
  EXPECT_EQ(latest[1].count, 2);
  EXPECT_EQ(latest[1].time, start + absl::Seconds(1));
}

TEST(RefusalsTest, TheOldestGo) {
  Refusals refusals;
  for (int i = 0; i < 100; ++i) {
    const absl::Status status =
        WithReasonText(absl::InvalidArgumentError("no"), "R" + std::to_string(i));
    refusals.Ended("PruneService/CreateJob", status, absl::UnixEpoch());
  }
  EXPECT_THAT(refusals.Latest(), SizeIs(Refusals::kKept));
  EXPECT_EQ(refusals.Latest()[0].reason, "R99");
}

}  // namespace
}  // namespace sparsefw::server
