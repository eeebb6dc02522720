#include "server/tensors/uploads/accumulators.h"

#include <memory>

#include "gtest/gtest.h"
#include "sparsefw/reason.h"
#include "tests/server/tensors/sum_backend.h"
#include "tests/testing/matchers.h"

namespace sparsefw::server {
namespace {

using testing::StatusIs;

constexpr int64_t kInputs = 8;
constexpr int64_t kSumBytes = 1000;

// Sums on a device of its own, which are those of the CPU otherwise.
class DeviceBackend final : public SumBackend {
 public:
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    if (!error.ok()) return error;
    ++made;
    return SumBackend::CreateGramAccumulator(d_in, threads);
  }
  int64_t DeviceGramSumBytes(int64_t) const override { return kSumBytes; }

  absl::Status error;
  mutable int made = 0;
};

TEST(AccumulatorsTest, SumsWithoutRoomOnTheDeviceAreMadeOnTheCpu) {
  const DeviceBackend backend;
  Accumulators accumulators(backend, 1, 2 * kSumBytes + 1);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(auto first, accumulators.Make(kInputs));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto second, accumulators.Make(kInputs));
  EXPECT_EQ(accumulators.device().used(), 2 * kSumBytes);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto third, accumulators.Make(kInputs));
  EXPECT_EQ(backend.made, 2);
  EXPECT_EQ(third.accumulator->d_in(), kInputs);
  EXPECT_EQ(accumulators.without_room(), 1);
  first = {};
  EXPECT_EQ(accumulators.device().used(), kSumBytes);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto fourth, accumulators.Make(kInputs));
  EXPECT_EQ(backend.made, 3);
}

TEST(AccumulatorsTest, ADeviceThatOthersHaveFilledIsNotNeeded) {
  DeviceBackend backend;
  Accumulators accumulators(backend, 1, 10 * kSumBytes);
  backend.error = WithReason(absl::ResourceExhaustedError("full"), "OUT_OF_MEMORY");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto sum, accumulators.Make(kInputs));
  EXPECT_EQ(sum.accumulator->d_in(), kInputs);
  EXPECT_EQ(accumulators.without_room(), 1);
  EXPECT_EQ(accumulators.device().used(), 0);
  backend.error = WithReason(absl::InternalError("gone"), "DEVICE_LOST");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto without_device, accumulators.Make(kInputs));
  EXPECT_EQ(without_device.accumulator->d_in(), kInputs);
  EXPECT_EQ(accumulators.without_room(), 2);
  EXPECT_EQ(accumulators.device().used(), 0);
  backend.error = WithReason(absl::InternalError("broken"), "OPTION_INVALID");
  EXPECT_THAT(accumulators.Make(kInputs), StatusIs(absl::StatusCode::kInternal, "OPTION_INVALID"));
}

TEST(AccumulatorsTest, TheHostHasNoDeviceMemory) {
  Accumulators accumulators(**FindBackend("cpu"), 1, 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto sum, accumulators.Make(kInputs));
  EXPECT_EQ(accumulators.without_room(), 0);
}

}  // namespace
}  // namespace sparsefw::server
