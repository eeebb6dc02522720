#include "core/src/parallel/host_info.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace sparsefw {
namespace {

// "24579332 kB"
int64_t BytesOf(const std::string& field) {
  std::istringstream fields(field);
  int64_t kibibytes = 0;
  return fields >> kibibytes ? kibibytes * 1024 : 0;
}

HostMemory MemoryOfMachine() {
  HostMemory memory;
  std::ifstream file("/proc/meminfo");
  for (std::string key, value; file >> key && std::getline(file, value);) {
    if (key == "MemTotal:") memory.total_bytes = BytesOf(value);
    if (key == "MemAvailable:") memory.available_bytes = BytesOf(value);
    if (memory.total_bytes != 0 && memory.available_bytes != 0) break;
  }
  return memory;
}

// A number of bytes, or nothing where the file says "max" or is not there.
std::optional<int64_t> FileBytes(const char* path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  if (file >> bytes) return bytes;
  return std::nullopt;
}

std::string ReadProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string ProcessorName() {
  // The system writes the text anew for each reader, for every core.
  static const std::string& name = *new std::string(ReadProcessorName());
  return name;
}

HostMemory ReadHostMemory() {
  HostMemory memory = MemoryOfMachine();
  const std::optional<int64_t> limit = FileBytes("/sys/fs/cgroup/memory.max");
  if (!limit || memory.total_bytes == 0 || *limit >= memory.total_bytes) return memory;
  memory.total_bytes = *limit;
  const int64_t used = FileBytes("/sys/fs/cgroup/memory.current").value_or(0);
  memory.available_bytes = std::min(memory.available_bytes, std::max<int64_t>(0, *limit - used));
  return memory;
}

}  // namespace sparsefw
