// Flags, environment and configuration file of the server. The first line of the input is split
// into flags, the second is the value of every variable, the rest is the file.
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/app/config.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sparsefw::server::Arguments;
  static const std::string path = "/tmp/sparsefw-fuzz-" + std::to_string(getpid()) + ".conf";
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  std::vector<std::string> flags = absl::StrSplit(parts[0], ' ', absl::SkipEmpty());
  if (parts.size() > 2) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return 0;
    std::fwrite(parts[2].data(), 1, parts[2].size(), file);
    std::fclose(file);
    flags.insert(flags.begin(), {"--config", path});
  }
  const std::string value = parts.size() > 1 ? parts[1] : "";
  const Arguments parsed = sparsefw::server::ParseArguments(
      flags, [&](const std::string& name) { return name == "SPARSEFW_WORKERS" ? value : ""; });
  unlink(path.c_str());
  sparsefw::fuzz::Require(parsed.config.has_value() || !parsed.text.empty(),
                          "a refusal says something");
  if (parsed.config) {
    sparsefw::fuzz::Require(parsed.config->jobs.workers >= 1, "workers is in its range");
    sparsefw::fuzz::Require(parsed.config->staging_memory_bytes >= 1, "so is staging-memory");
  }
  return 0;
}
