// Stands for libnvidia-ml.so.1 where there is no GPU: three cards. The last
// and the first are the devices of the fake CUDA module, the one between them is
// the emulated device. What a call does is
// in the environment variable SPARSEFW_FAKE_NVML, a list with commas of
//
//   CALL=ACT or CALL@CARD=ACT
//
//   CALL  init, find, memory, utilization, temperature, power
//   CARD  0 to 2, in NVML's order
//   ACT   error:N  it returns N
//         value:N  what it tells, in NVML's unit (of memory: what is used)
//         block    it never returns
//
// Otherwise card n has n+1 of 80 GiB in use, runs at 10(n+1) % and its memory at
// 5(n+1) %, has 40+n degrees and draws 100.5+n watts.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "server/metrics/nvml.h"

#define FAKE_NVML_EXPORT extern "C" __attribute__((visibility("default")))

struct nvmlDevice_st {
  const char* pci_bus_id;
  int card;
};

namespace {

namespace nvml = sparsefw::server;
using nvml::NvmlReturn;

nvmlDevice_st g_cards[] = {
    {"00000000:03:00.0", 0}, {"00000000:3B:00.0", 1}, {"00000000:82:00.0", 2}};

// The act of `key`; "" where the variable does not name it.
std::string_view ActOf(const std::string& key) {
  const char* const script = std::getenv("SPARSEFW_FAKE_NVML");
  std::string_view rest = script == nullptr ? "" : script;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = item.find('=');
    if (equals != std::string_view::npos && item.substr(0, equals) == key) {
      return item.substr(equals + 1);
    }
  }
  return "";
}

struct Outcome {
  NvmlReturn code = nvml::kNvmlSuccess;
  uint64_t value = 0;
};

Outcome Play(const std::string& call, int card, uint64_t otherwise) {
  std::string_view act = ActOf(call + "@" + std::to_string(card));
  if (act.empty()) act = ActOf(call);
  if (act == "block") {
    for (;;) pause();
  }
  const std::string number(act.substr(std::min(act.find(':') + 1, act.size())));
  if (act.starts_with("error:")) return {.code = std::atoi(number.c_str())};
  if (act.starts_with("value:")) {
    return {.value = std::strtoull(number.c_str(), nullptr, 10)};
  }
  return {.value = otherwise};
}

bool g_running = false;

}  // namespace

FAKE_NVML_EXPORT NvmlReturn nvmlInit_v2() {
  const Outcome outcome = Play("init", 0, 0);
  g_running = outcome.code == nvml::kNvmlSuccess;
  return outcome.code;
}

FAKE_NVML_EXPORT NvmlReturn nvmlShutdown() {
  g_running = false;
  return nvml::kNvmlSuccess;
}

FAKE_NVML_EXPORT const char* nvmlErrorString(NvmlReturn code) {
  switch (code) {
    case nvml::kNvmlNotSupported:
      return "Not Supported";
    case nvml::kNvmlNotFound:
      return "Not Found";
    case nvml::kNvmlDriverNotLoaded:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

// NVML reads other forms of the id, too; this one is sure.
FAKE_NVML_EXPORT NvmlReturn nvmlDeviceGetHandleByPciBusId_v2(const char* id,
                                                             nvml::NvmlDevice* device) {
  if (!g_running) return nvml::kNvmlInvalidArgument;
  for (nvmlDevice_st& card : g_cards) {
    if (std::strcmp(card.pci_bus_id, id) != 0) continue;
    *device = &card;
    return Play("find", card.card, 0).code;
  }
  return nvml::kNvmlNotFound;
}

FAKE_NVML_EXPORT NvmlReturn nvmlDeviceGetMemoryInfo(nvml::NvmlDevice device,
                                                    nvml::NvmlMemory* memory) {
  const Outcome outcome = Play("memory", device->card, 0);
  memory->total = 80ULL << 30;
  memory->used = outcome.value > 0 ? outcome.value : (device->card + 1ULL) << 30;
  memory->free = memory->total - memory->used;
  return outcome.code;
}

FAKE_NVML_EXPORT NvmlReturn nvmlDeviceGetUtilizationRates(nvml::NvmlDevice device,
                                                          nvml::NvmlUtilization* rates) {
  const unsigned memory = 5 * (static_cast<unsigned>(device->card) + 1);
  const Outcome outcome = Play("utilization", device->card, 2 * memory);
  *rates = {.gpu = static_cast<unsigned>(outcome.value), .memory = memory};
  return outcome.code;
}

FAKE_NVML_EXPORT NvmlReturn nvmlDeviceGetTemperature(nvml::NvmlDevice device, int sensor,
                                                     unsigned* celsius) {
  if (sensor != nvml::kNvmlTemperatureGpu) return nvml::kNvmlInvalidArgument;
  const Outcome outcome =
      Play("temperature", device->card, 40 + static_cast<unsigned>(device->card));
  *celsius = static_cast<unsigned>(outcome.value);
  return outcome.code;
}

FAKE_NVML_EXPORT NvmlReturn nvmlDeviceGetPowerUsage(nvml::NvmlDevice device, unsigned* milliwatts) {
  const Outcome outcome =
      Play("power", device->card, 100'500 + 1000 * static_cast<unsigned>(device->card));
  *milliwatts = static_cast<unsigned>(outcome.value);
  return outcome.code;
}
