#include "core/src/parallel/host_info.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace sparsefw {
namespace {

// "MemTotal:       24579332 kB"
std::optional<int64_t> MeminfoBytes(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::istringstream fields(line.substr(key.size()));
    int64_t kibibytes = 0;
    if (fields >> kibibytes) return kibibytes * 1024;
  }
  return std::nullopt;
}

// A number of bytes, or nothing where the file says "max" or is not there.
std::optional<int64_t> FileBytes(const char* path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  if (file >> bytes) return bytes;
  return std::nullopt;
}

}  // namespace

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

HostMemory ReadHostMemory() {
  HostMemory memory = {MeminfoBytes("MemTotal:").value_or(0),
                       MeminfoBytes("MemAvailable:").value_or(0)};
  const std::optional<int64_t> limit = FileBytes("/sys/fs/cgroup/memory.max");
  if (!limit || memory.total_bytes == 0 || *limit >= memory.total_bytes) return memory;
  memory.total_bytes = *limit;
  const int64_t used = FileBytes("/sys/fs/cgroup/memory.current").value_or(0);
  memory.available_bytes = std::min(memory.available_bytes, std::max<int64_t>(0, *limit - used));
  return memory;
}

}  // namespace sparsefw
