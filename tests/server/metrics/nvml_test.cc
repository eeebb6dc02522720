#include "server/metrics/nvml.h"

#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"

struct nvmlDevice_st {
  sparsefw::server::NvmlMemory memory = {};
  sparsefw::server::NvmlUtilization rates = {};
  unsigned celsius = 0;
  unsigned milliwatts = 0;
  // Results of the calls, in the order above.
  sparsefw::server::NvmlReturn codes[4] = {};
};

namespace sparsefw::server {
namespace {

using ::sparsefw::testing::StatusIs;

// Behind the table, whose functions carry no state.
struct FakeNvml {
  NvmlReturn init_code = kNvmlSuccess;
  int started = 0;  // init less shutdown
  std::map<std::string, nvmlDevice_st> cards;
};
FakeNvml g_nvml;

NvmlApi FakeTable() {
  NvmlApi api;
  api.init = [] {
    g_nvml.started += g_nvml.init_code == kNvmlSuccess ? 1 : 0;
    return g_nvml.init_code;
  };
  api.shutdown = [] {
    --g_nvml.started;
    return kNvmlSuccess;
  };
  api.error_string = [](NvmlReturn code) -> const char* {
    return code == kNvmlNotFound ? "Not Found" : nullptr;
  };
  api.device_by_pci_bus_id = [](const char* id, NvmlDevice* device) {
    const auto found = g_nvml.cards.find(id);
    if (found == g_nvml.cards.end()) return kNvmlNotFound;
    *device = &found->second;
    return kNvmlSuccess;
  };
  api.memory_info = [](NvmlDevice device, NvmlMemory* memory) {
    *memory = device->memory;
    return device->codes[0];
  };
  api.utilization_rates = [](NvmlDevice device, NvmlUtilization* rates) {
    *rates = device->rates;
    return device->codes[1];
  };
  api.temperature = [](NvmlDevice device, int sensor, unsigned* celsius) {
    EXPECT_EQ(sensor, kNvmlTemperatureGpu);
    *celsius = device->celsius;
    return device->codes[2];
  };
  api.power_usage = [](NvmlDevice device, unsigned* milliwatts) {
    *milliwatts = device->milliwatts;
    return device->codes[3];
  };
  return api;
}

class NvmlSamplerTest : public ::testing::Test {
 protected:
  NvmlSamplerTest() {
    g_nvml = {};
    g_nvml.cards["00000000:03:00.0"] = {.memory = {100, 70, 30},
                                        .rates = {.gpu = 25, .memory = 5},
                                        .celsius = 61,
                                        .milliwatts = 123'400};
    g_nvml.cards["00000000:82:00.0"] = {.memory = {200, 0, 200},
                                        .rates = {.gpu = 100, .memory = 50},
                                        .celsius = 80,
                                        .milliwatts = 700'000};
  }

  const std::vector<GpuDevice> devices_ = {{"cuda:0", "00000000:82:00.0"},
                                           {"cuda:1", "00000000:03:00.0"}};
};

TEST_F(NvmlSamplerTest, MeasuresTheCardsOfTheDevices) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(GpuSampler sample, OpenNvmlSampler(FakeTable(), devices_));
  const std::vector<GpuSample> samples = sample();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].device, "cuda:0");
  EXPECT_EQ(samples[0].memory->used_bytes, 200);
  EXPECT_EQ(samples[0].power_watts, 700.0);
  EXPECT_EQ(samples[1].device, "cuda:1");
  EXPECT_EQ(samples[1].memory->used_bytes, 30);
  EXPECT_EQ(samples[1].memory->total_bytes, 100);
  EXPECT_EQ(samples[1].utilization, 0.25);
  EXPECT_EQ(samples[1].memory_utilization, 0.05);
  EXPECT_EQ(samples[1].temperature_celsius, 61.0);
  EXPECT_EQ(samples[1].power_watts, 123.4);
  g_nvml.cards["00000000:03:00.0"].celsius = 62;
  EXPECT_EQ(sample()[1].temperature_celsius, 62.0) << "measured anew";
}

TEST_F(NvmlSamplerTest, WhatFailsIsAbsentAndTheRestIsThere) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const GpuSampler sample, OpenNvmlSampler(FakeTable(), devices_));
  for (size_t failing = 0; failing < 4; ++failing) {
    for (const NvmlReturn code : {kNvmlNotSupported, kNvmlGpuIsLost, 999}) {
      nvmlDevice_st& card = g_nvml.cards["00000000:82:00.0"];
      card.codes[failing] = code;
      const std::vector<GpuSample> samples = sample();
      card.codes[failing] = kNvmlSuccess;
      EXPECT_EQ(samples[0].memory.has_value(), failing != 0);
      EXPECT_EQ(samples[0].utilization.has_value(), failing != 1);
      EXPECT_EQ(samples[0].memory_utilization.has_value(), failing != 1);
      EXPECT_EQ(samples[0].temperature_celsius.has_value(), failing != 2);
      EXPECT_EQ(samples[0].power_watts.has_value(), failing != 3);
      EXPECT_TRUE(samples[1].memory && samples[1].utilization && samples[1].temperature_celsius &&
                  samples[1].power_watts);
    }
  }
}

TEST_F(NvmlSamplerTest, FunctionsThatNvmlLacksAreNotCalled) {
  NvmlApi api = FakeTable();
  api.memory_info = nullptr;
  api.utilization_rates = nullptr;
  api.temperature = nullptr;
  api.power_usage = nullptr;
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const GpuSampler sample, OpenNvmlSampler(api, devices_));
  const std::vector<GpuSample> samples = sample();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_FALSE(samples[0].memory || samples[0].utilization || samples[0].memory_utilization ||
               samples[0].temperature_celsius || samples[0].power_watts);
}

TEST_F(NvmlSamplerTest, ADeviceThatNvmlDoesNotKnowIsLeftOut) {
  g_nvml.cards.erase("00000000:82:00.0");
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const GpuSampler sample, OpenNvmlSampler(FakeTable(), devices_));
  ASSERT_EQ(sample().size(), 1U);
  EXPECT_EQ(sample()[0].device, "cuda:1");
}

TEST_F(NvmlSamplerTest, NvmlThatKnowsNoneOfThemIsAnErrorAndEnded) {
  g_nvml.cards.clear();
  EXPECT_THAT(OpenNvmlSampler(FakeTable(), devices_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "",
                       "NVML does not know cuda:0 at 00000000:82:00.0: Not Found (NVML error 6)"));
  EXPECT_EQ(g_nvml.started, 0);
}

TEST_F(NvmlSamplerTest, NvmlThatDoesNotStartIsAnErrorAndNotEnded) {
  g_nvml.init_code = kNvmlDriverNotLoaded;
  EXPECT_THAT(OpenNvmlSampler(FakeTable(), devices_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "",
                       "NVML does not start: unknown (NVML error 9)"));
  EXPECT_EQ(g_nvml.started, 0);
}

TEST_F(NvmlSamplerTest, NvmlEndsWithTheLastCopy) {
  {
    SPARSEFW_ASSERT_OK_AND_ASSIGN(GpuSampler sample, OpenNvmlSampler(FakeTable(), devices_));
    const GpuSampler copy = sample;
    sample = nullptr;
    EXPECT_EQ(copy().size(), 2U);
    EXPECT_EQ(g_nvml.started, 1);
  }
  EXPECT_EQ(g_nvml.started, 0);
}

TEST(NvmlApiTest, ALibraryIsOpenedAndItsFunctionsAreFound) {
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const NvmlApi api,
                                LoadNvml(SPARSEFW_BINARY_DIR "/tests/fake_nvml/libnvidia-ml.so.1"));
  ASSERT_EQ(unsetenv("SPARSEFW_FAKE_NVML"), 0);
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const GpuSampler sample,
                                OpenNvmlSampler(api, {{"cuda:0", "00000000:82:00.0"}}));
  const std::vector<GpuSample> samples = sample();
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].memory->used_bytes, int64_t{3} << 30);
  EXPECT_EQ(samples[0].memory->total_bytes, int64_t{80} << 30);
  EXPECT_EQ(samples[0].utilization, 0.3);
  EXPECT_EQ(samples[0].memory_utilization, 0.15);
  EXPECT_EQ(samples[0].temperature_celsius, 42.0);
  EXPECT_EQ(samples[0].power_watts, 102.5);
}

TEST(NvmlApiTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(LoadNvml("libno-such-nvml.so.1"),
              StatusIs(absl::StatusCode::kNotFound, "", "cannot load NVML: libno-such-nvml.so.1"));
  EXPECT_THAT(LoadNvml(SPARSEFW_BINARY_DIR "/tests/libsparsefw_no_cuda.so"),
              StatusIs(absl::StatusCode::kUnimplemented, "", "libsparsefw_no_cuda.so) lacks nvml"));
}

}  // namespace
}  // namespace sparsefw::server
