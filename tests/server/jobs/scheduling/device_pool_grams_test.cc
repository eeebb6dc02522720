// Grams that stay on devices: the books of it, without threads.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/jobs/scheduling/device_pool.h"
#include "tests/server/jobs/scheduling/two_devices.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::IsOk;
using testing::StatusIs;

// Two devices of 100 bytes with three streams each.
class DevicePoolGramsTest : public ::testing::Test {
 protected:
  static DeviceNeed Need(int64_t bytes, const std::string& gram = "", int64_t gram_bytes = 40) {
    return {kBoth, bytes, gram, gram.empty() ? 0 : gram_bytes};
  }
  // It waits, then runs there.
  std::shared_ptr<SharedGram> Run(const std::string& device, const DeviceNeed& need) {
    pool_.Ref(need);
    return pool_.Reserve(device, need, &evicted_);
  }
  void End(const std::string& device, const DeviceNeed& need) {
    pool_.Release(device, need, &evicted_);
    pool_.Unref(need, &evicted_);
  }
  // Lets go of what has left. How many bytes that were.
  int64_t Free() {
    int64_t bytes = 0;
    for (EvictedGram& left : evicted_) {
      bytes += left.bytes;
      left.gram.reset();
      pool_.ReleaseBytes(left);
    }
    evicted_.clear();
    return bytes;
  }
  DeviceUsage Usage(size_t device = 0) const { return pool_.usage()[device]; }

  DevicePool pool_{{{"cuda:0", 100, 3}, {"cuda:1", 100, 3}}};
  EvictedGrams evicted_;
};

TEST_F(DevicePoolGramsTest, TheDeviceThatHoldsTheGramIsPreferredAndNeedsItOnce) {
  const DeviceNeed need = Need(20, "q");
  EXPECT_EQ(pool_.Choose(need), "cuda:0");
  const auto gram = Run("cuda:0", need);
  ASSERT_NE(gram, nullptr);
  EXPECT_EQ(Usage().reserved_bytes, 60);
  EXPECT_EQ(pool_.Choose(Need(1)), "cuda:1") << "the emptier one for others";
  EXPECT_EQ(pool_.Choose(need), "cuda:0");
  EXPECT_EQ(Run("cuda:0", need), gram);
  EXPECT_EQ(Usage().reserved_bytes, 80);
  EXPECT_EQ(Usage().gram_bytes, 40);
  EXPECT_EQ(pool_.Choose(need), "cuda:0");
  Run("cuda:0", Need(1));
  EXPECT_EQ(pool_.Choose(need), "cuda:1") << "no stream there";
  EXPECT_NE(Run("cuda:1", need), gram) << "each device has its own";
  EXPECT_TRUE(evicted_.empty());
}

TEST_F(DevicePoolGramsTest, WithoutRoomForTheJobItselfThePreferenceIsNone) {
  Run("cuda:0", Need(50, "q"));
  EXPECT_EQ(pool_.Choose(Need(10, "q")), "cuda:0");
  EXPECT_EQ(pool_.Choose(Need(11, "q")), "cuda:1") << "40 + 50 + 11 is too much";
}

TEST_F(DevicePoolGramsTest, BothMustFitWhereItIsNotThere) {
  EXPECT_THAT(pool_.CheckPossible(Need(60, "q")), IsOk());
  EXPECT_THAT(pool_.CheckPossible(Need(61, "q")),
              StatusIs(absl::StatusCode::kResourceExhausted, "DEVICE_MEMORY",
                       "needs about 101 bytes of device memory"));
  Run("cuda:0", Need(1));
  Run("cuda:1", Need(1));
  EXPECT_EQ(pool_.Choose(Need(60, "q")), std::nullopt);
  EXPECT_EQ(pool_.Choose(Need(59, "q")), "cuda:0");
}

TEST_F(DevicePoolGramsTest, StaysWhileAJobNamesItAndGoesWithTheLast) {
  const DeviceNeed need = Need(20, "q");
  Run("cuda:0", need);
  pool_.Ref(need);  // waits
  End("cuda:0", need);
  EXPECT_TRUE(evicted_.empty());
  EXPECT_EQ(Usage().reserved_bytes, 0) << "counts as free";
  EXPECT_EQ(Usage().gram_bytes, 40);
  Run("cuda:1", Need(1));
  EXPECT_EQ(pool_.Choose(need), "cuda:0");
  pool_.Unref(need, &evicted_);  // cancelled
  EXPECT_EQ(Free(), 40);
  EXPECT_EQ(Usage().gram_bytes, 0);
}

TEST_F(DevicePoolGramsTest, GoesFromAllDevices) {
  const DeviceNeed need = Need(20, "q");
  Run("cuda:0", need);
  Run("cuda:1", need);
  End("cuda:0", need);
  EXPECT_TRUE(evicted_.empty());
  End("cuda:1", need);
  EXPECT_EQ(Free(), 80);
}

TEST_F(DevicePoolGramsTest, OneThatNobodyUsesMakesRoom) {
  const DeviceNeed need = Need(20, "q");
  Run("cuda:0", need);
  pool_.Ref(need);
  End("cuda:0", need);
  const DeviceNeed big = {{"cuda:0"}, 61};
  EXPECT_EQ(pool_.Choose(big), "cuda:0");
  EXPECT_EQ(Run("cuda:0", big), nullptr);
  ASSERT_EQ(evicted_.size(), 1U);
  EXPECT_EQ(evicted_[0].device, "cuda:0");
  // Its memory is nobody's before it is free.
  EXPECT_EQ(pool_.Choose({{"cuda:0"}, 1}), std::nullopt);
  EXPECT_EQ(Usage().gram_bytes, 40);
  EXPECT_EQ(Free(), 40);
  EXPECT_EQ(Usage().gram_bytes, 0);
  EXPECT_EQ(pool_.Choose({{"cuda:0"}, 39}), "cuda:0");
  // The job that waits brings it again, elsewhere.
  EXPECT_EQ(pool_.Choose(need), "cuda:1");
}

TEST_F(DevicePoolGramsTest, NoMoreThanNeededLeavesAndTheOldestFirst) {
  for (const char* name : {"a", "b", "c"}) {
    const DeviceNeed need = Need(10, name, 30);
    Run("cuda:0", need);
    pool_.Ref(need);
    End("cuda:0", need);
  }
  EXPECT_EQ(Usage().gram_bytes, 90);
  Run("cuda:0", Need(5));
  EXPECT_TRUE(evicted_.empty());
  Run("cuda:0", Need(30));
  EXPECT_EQ(Free(), 30) << "5 + 30 + 60 fit";
  EXPECT_EQ(pool_.Choose(Need(1, "a", 30)), "cuda:1") << "it was the first to be idle";
  EXPECT_EQ(pool_.Choose(Need(1, "b", 30)), "cuda:0");
}

TEST_F(DevicePoolGramsTest, OneThatIsUsedMakesNoRoom) {
  Run("cuda:0", Need(20, "q"));
  EXPECT_EQ(pool_.Choose({{"cuda:0"}, 41}), std::nullopt);
  EXPECT_EQ(pool_.Choose({{"cuda:0"}, 40}), "cuda:0");
}

TEST_F(DevicePoolGramsTest, OneThatIsUsedAgainIsNotWhatMakesRoomForItsJob) {
  const DeviceNeed other = Need(0, "other", 60);
  const DeviceNeed need = Need(10, "q");
  for (const DeviceNeed& one : {need, other}) {
    Run("cuda:0", one);
    pool_.Ref(one);
    End("cuda:0", one);
  }
  const DeviceNeed bigger = {{"cuda:0"}, 60, "q", 40};
  EXPECT_EQ(pool_.Choose(bigger), "cuda:0");
  Run("cuda:0", bigger);
  EXPECT_EQ(Free(), 60) << "the other one, though q was idle for longer";
  EXPECT_EQ(Usage().reserved_bytes, 100);
}

TEST_F(DevicePoolGramsTest, ALostDeviceForgetsThem) {
  const DeviceNeed used = Need(10, "used");
  const DeviceNeed idle = Need(10, "idle");
  Run("cuda:0", used);
  Run("cuda:0", idle);
  pool_.Ref(idle);
  End("cuda:0", idle);
  EXPECT_TRUE(pool_.MarkLost("cuda:0", &evicted_));
  EXPECT_EQ(Free(), 40);
  EXPECT_EQ(pool_.Choose(idle), "cuda:1");
  // The job moves; others still name its Gram.
  pool_.Ref(used);
  pool_.Release("cuda:0", used, &evicted_);
  EXPECT_EQ(Free(), 40);
  EXPECT_NE(pool_.Reserve("cuda:1", used, &evicted_), nullptr);
  EXPECT_EQ(Usage(0).gram_bytes, 0);
  EXPECT_EQ(Usage(1).reserved_bytes, 50);
  EXPECT_FALSE(pool_.MarkLost("cuda:0", &evicted_));
}

}  // namespace
}  // namespace sparsefw::server
