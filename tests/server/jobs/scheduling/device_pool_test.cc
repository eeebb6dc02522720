#include "server/jobs/scheduling/device_pool.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/jobs/scheduling/two_devices.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

bool MarkLost(DevicePool& pool, const std::string& device) {
  EvictedGrams evicted;
  return pool.MarkLost(device, &evicted);
}

TEST(DevicePoolTest, TheDeviceWithMostUnreservedMemoryIsChosen) {
  DevicePool pool = TwoDevices();
  EXPECT_EQ(pool.Choose({kBoth, 30}), "cuda:0");
  Reserve(pool, "cuda:0", 30);
  EXPECT_EQ(pool.Choose({kBoth, 30}), "cuda:0");
  Reserve(pool, "cuda:0", 30);
  EXPECT_EQ(pool.Choose({kBoth, 30}), "cuda:1");
  Release(pool, "cuda:0", 30);
  EXPECT_EQ(pool.Choose({kBoth, 30}), "cuda:0");
  EXPECT_EQ(pool.usage()[0].reserved_bytes, 30);
  EXPECT_EQ(pool.usage()[0].jobs, 1);
}

TEST(DevicePoolTest, OfEqualOnesTheFirst) {
  const DevicePool pool({{"cuda:0", 50, 1}, {"cuda:1", 50, 1}});
  EXPECT_EQ(pool.Choose({kBoth, 1}), "cuda:0");
}

TEST(DevicePoolTest, ANamedDeviceIsNotReplaced) {
  DevicePool pool = TwoDevices();
  EXPECT_EQ(pool.Choose({kOnlySecond, 30}), "cuda:1");
  Reserve(pool, "cuda:1", 40);
  EXPECT_EQ(pool.Choose({kOnlySecond, 30}), std::nullopt);
}

TEST(DevicePoolTest, StreamsAndBytesBothLimit) {
  DevicePool pool({{"cuda:0", 100, 2}});
  Reserve(pool, "cuda:0", 99);
  EXPECT_EQ(pool.Choose({kFirst, 2}), std::nullopt);
  EXPECT_EQ(pool.Choose({kFirst, 1}), "cuda:0");
  Reserve(pool, "cuda:0", 0);
  EXPECT_EQ(pool.Choose({kFirst, 1}), std::nullopt);
}

TEST(DevicePoolTest, WhatCanNeverFitIsRefusedWithBothNumbers) {
  const DevicePool pool = TwoDevices();
  EXPECT_THAT(pool.CheckPossible({kBoth, 100}), IsOk());
  const absl::Status refused = pool.CheckPossible({kBoth, 101});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                                "needs about 101 bytes of device memory; running jobs "
                                "may use 100 on cuda:0, 60 on cuda:1 together"));
  EXPECT_THAT(pool.CheckPossible({kOnlySecond, 61}),
              StatusIs(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY", "60 on cuda:1"));
  EXPECT_THAT(pool.CheckPossible({}), IsOk()) << "the CPU's";
}

TEST(DevicePoolTest, ALostDeviceTakesNothing) {
  DevicePool pool = TwoDevices();
  EXPECT_TRUE(MarkLost(pool, "cuda:0"));
  EXPECT_FALSE(MarkLost(pool, "cuda:0"));
  EXPECT_EQ(pool.Choose({kBoth, 1}), "cuda:1");
  EXPECT_EQ(pool.Choose({kFirst, 1}), std::nullopt);
  EXPECT_THAT(pool.CheckPossible({kBoth, 80}), StatusIs(absl::StatusCode::kResourceExhausted,
                                                        "DEVICE_MEMORY", "may use 60 on cuda:1"));
  const absl::Status refused = pool.CheckPossible({kFirst, 1});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, "DEVICE_UNAVAILABLE",
                                "got cuda:0, lost until the server restarts"));
}

}  // namespace
}  // namespace sparsefw::server
