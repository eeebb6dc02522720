// A pool of two devices for tests.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_SCHEDULING_TWO_DEVICES_H_
#define SPARSEFW_TESTS_SERVER_JOBS_SCHEDULING_TWO_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/jobs/scheduling/device_pool.h"

namespace sparsefw::server {

inline const std::vector<std::string> kBoth = {"cuda:0", "cuda:1"};
inline const std::vector<std::string> kFirst = {"cuda:0"};
inline const std::vector<std::string> kOnlySecond = {"cuda:1"};

inline DevicePool TwoDevices(int streams = 2) {
  return DevicePool({{"cuda:0", 100, streams}, {"cuda:1", 60, streams}});
}

// Both are for jobs without a Gram.
inline void Reserve(DevicePool& pool, const std::string& device, int64_t bytes) {
  EvictedGrams evicted;
  EXPECT_EQ(pool.Reserve(device, {{device}, bytes}, &evicted), nullptr);
  EXPECT_TRUE(evicted.empty());
}
inline void Release(DevicePool& pool, const std::string& device, int64_t bytes) {
  EvictedGrams evicted;
  pool.Release(device, {{device}, bytes}, &evicted);
  EXPECT_TRUE(evicted.empty());
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_SCHEDULING_TWO_DEVICES_H_
