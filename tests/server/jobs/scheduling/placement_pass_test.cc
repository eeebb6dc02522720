#include "server/jobs/scheduling/placement_pass.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/jobs/scheduling/two_devices.h"

namespace sparsefw::server {
namespace {

TEST(PlacementPassTest, JobsForOtherDevicesPassOneThatWaits) {
  DevicePool pool = TwoDevices();
  Reserve(pool, "cuda:0", 50);
  PlacementPass pass(pool, {});
  EXPECT_EQ(pass.Place({0, {kFirst, 80}}), std::nullopt);
  EXPECT_EQ(pass.Place({0, {kFirst, 10}}), std::nullopt) << "kept for the one before";
  EXPECT_EQ(pass.Place({0, {kBoth, 10}}), "cuda:1");
  EXPECT_EQ(pass.Place({}), "") << "the CPU's";
  EXPECT_FALSE(pass.Full());
}

TEST(PlacementPassTest, OneThatWaitsForMemoryOfTheHostIsPassedByNobody) {
  const DevicePool pool = TwoDevices();
  PlacementPass pass(pool, {.free_bytes = 5, .idle = false});
  EXPECT_EQ(pass.Place({6, {}}), std::nullopt);
  EXPECT_EQ(pass.Place({1, {}}), std::nullopt);
  EXPECT_EQ(pass.Place({1, {kBoth, 1}}), std::nullopt);
  EXPECT_TRUE(pass.Full());
  PlacementPass idle(pool, {.free_bytes = 5, .idle = true});
  EXPECT_EQ(idle.Place({6, {}}), "") << "alone it would never fit better";
}

TEST(PlacementPassTest, OneThatRunsAloneWaitsUntilNothingRuns) {
  const DevicePool pool = TwoDevices();
  const JobNeed alone = {0, {}, true};
  PlacementPass busy(pool, {.nothing_runs = false});
  EXPECT_EQ(busy.Place(alone), std::nullopt);
  EXPECT_EQ(busy.Place({}), std::nullopt) << "nobody passes it";
  EXPECT_EQ(busy.Place({0, {kBoth, 1}}), std::nullopt);
  EXPECT_TRUE(busy.held_back().contains(std::string(kHostMemory))) << "but for a while";
  PlacementPass lapsed(pool, {.nothing_runs = false}, {std::string(kHostMemory)});
  EXPECT_EQ(lapsed.Place(alone), std::nullopt);
  EXPECT_EQ(lapsed.Place({}), "");
  PlacementPass idle(pool, {.nothing_runs = true});
  EXPECT_EQ(idle.Place(alone), "");
}

TEST(PlacementPassTest, WithoutAWorkerOnlyDevicesTakeJobs) {
  DevicePool pool({{"cuda:0", 100, 1}});
  PlacementPass pass(pool, {.free_worker = false});
  EXPECT_EQ(pass.Place({}), std::nullopt);
  EXPECT_FALSE(pass.Full());
  EXPECT_EQ(pass.Place({0, {kFirst, 1}}), "cuda:0");
  Reserve(pool, "cuda:0", 1);
  EXPECT_TRUE(PlacementPass(pool, {.free_worker = false}).Full());
}

TEST(PlacementPassTest, WhatMovesFromALostDeviceComesFirst) {
  const DevicePool pool = TwoDevices();
  PlacementPass pass(pool, {});
  pass.Claim({kOnlySecond, 50});
  EXPECT_EQ(pass.Place({0, {kOnlySecond, 1}}), std::nullopt);
  EXPECT_EQ(pass.Place({0, {kFirst, 1}}), "cuda:0");
}

TEST(PlacementPassTest, SaysWhichClaimHoldsAJobBack) {
  DevicePool pool = TwoDevices();
  Reserve(pool, "cuda:0", 50);
  PlacementPass pass(pool, {});
  EXPECT_EQ(pass.Place({0, {kFirst, 80}}), std::nullopt);
  EXPECT_THAT(pass.held_back(), ::testing::IsEmpty()) << "it does not fit, whatever is claimed";
  EXPECT_EQ(pass.Place({0, {kFirst, 10}}), std::nullopt);
  EXPECT_THAT(pass.held_back(), ::testing::ElementsAre("cuda:0"));

  PlacementPass lapsed(pool, {}, {"cuda:0"});
  EXPECT_EQ(lapsed.Place({0, {kFirst, 80}}), std::nullopt);
  EXPECT_EQ(lapsed.Place({0, {kFirst, 10}}), "cuda:0");

  PlacementPass memory(pool, {.free_bytes = 5, .idle = false});
  EXPECT_EQ(memory.Place({6, {}}), std::nullopt);
  EXPECT_EQ(memory.Place({5, {kFirst, 80}}), std::nullopt);
  EXPECT_THAT(memory.held_back(), ::testing::IsEmpty()) << "its device has no room";
  EXPECT_EQ(memory.Place({5, {}}), std::nullopt);
  EXPECT_THAT(memory.held_back(), ::testing::ElementsAre(std::string(kHostMemory)));
  PlacementPass no_memory_claim(pool, {.free_bytes = 5, .idle = false}, {std::string(kHostMemory)});
  EXPECT_EQ(no_memory_claim.Place({6, {}}), std::nullopt);
  EXPECT_EQ(no_memory_claim.Place({5, {}}), "");
}

TEST(ClaimTimesTest, AClaimLapsesForAsLongAsItHasHeldBack) {
  const absl::Time start = absl::FromUnixSeconds(1000);
  const auto after = [start](int seconds) { return start + absl::Seconds(seconds); };
  ClaimTimes times(absl::Seconds(10));
  EXPECT_EQ(times.next(), absl::InfiniteFuture());
  times.Update({"cuda:0"}, true, start);
  EXPECT_EQ(times.next(), after(10));
  times.Update({"cuda:0"}, true, after(9));
  EXPECT_THAT(times.Lapsed(after(9)), ::testing::IsEmpty());
  EXPECT_THAT(times.Lapsed(after(10)), ::testing::ElementsAre("cuda:0"));
  times.Update({}, true, after(11));  // nothing is held back while it has lapsed
  EXPECT_THAT(times.Lapsed(after(19)), ::testing::ElementsAre("cuda:0"));
  EXPECT_EQ(times.next(), absl::InfiniteFuture());
  EXPECT_THAT(times.Lapsed(after(20)), ::testing::IsEmpty()) << "it is honoured again";
  times.Update({"cuda:0"}, true, after(21));
  EXPECT_EQ(times.next(), after(31)) << "anew";
}

TEST(ClaimTimesTest, AClaimThatHoldsNobodyBackIsForgotten) {
  const absl::Time start = absl::FromUnixSeconds(1000);
  ClaimTimes times(absl::Seconds(10));
  times.Update({"cuda:0"}, true, start);
  times.Update({}, false, start + absl::Seconds(5));  // a pass that ended early knows nothing
  EXPECT_EQ(times.next(), start + absl::Seconds(10));
  times.Update({}, true, start + absl::Seconds(6));
  EXPECT_EQ(times.next(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace sparsefw::server
