// The safetensors reader, over a file of these bytes.
#include <unistd.h>

#include <string>

#include "sparsefw/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/tmp/sparsefw-fuzz-" + std::to_string(getpid()) + ".safetensors";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return 0;
  std::fwrite(data, 1, size, file);
  std::fclose(file);
  const auto opened = sparsefw::SafetensorsFile::Open(path);
  unlink(path.c_str());
  if (!opened.ok()) return 0;
  uint64_t sum = 0;  // reads every byte that an entry claims to have
  for (const sparsefw::SafetensorsEntry& entry : (*opened)->entries()) {
    for (const std::byte byte : entry.bytes) sum += static_cast<uint64_t>(byte);
    static_cast<void>(entry.AsMatrix().ok());
  }
  return sum == UINT64_MAX ? 1 : 0;
}
