#include "core/benchmarks/programs/bench_program.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sparsefw::bench {
namespace {

// A line of /proc/self/status: "VmHWM:	   12345 kB".
int64_t StatusBytes(std::string_view field) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(field)) continue;
    return std::strtoll(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  Die(absl::StrFormat("/proc/self/status has no %s", std::string(field)));
}

double ParseNumber(const std::string& name, const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) {
    Die(absl::StrFormat("--%s must be a number; got \"%s\"", name, text));
  }
  return value;
}

int64_t ParseInteger(const std::string& name, const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    Die(absl::StrFormat("--%s must be an integer; got \"%s\"", name, text));
  }
  return value;
}

}  // namespace

void Die(const std::string& message) {
  std::cerr << "benchmark: " << message << '\n';
  std::exit(1);
}

Flags::Flags(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (!name.starts_with("--") || i + 1 == argc) {
      Die(absl::StrFormat("arguments are pairs of --name value; got \"%s\"", name));
    }
    values_[name.substr(2)] = argv[i + 1];
  }
}

std::string Flags::Text(const std::string& name, const std::string& fallback) {
  known_.insert(name);
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

std::string Flags::Required(const std::string& name) {
  if (!values_.contains(name)) Die(absl::StrFormat("--%s is missing", name));
  return Text(name, "");
}

int64_t Flags::Integer(const std::string& name, int64_t fallback) {
  return ParseInteger(name, Text(name, absl::StrFormat("%d", fallback)));
}

double Flags::Number(const std::string& name, double fallback) {
  return ParseNumber(name, Text(name, absl::StrFormat("%.17g", fallback)));
}

void Flags::Finish() const {
  for (const auto& [name, value] : values_) {
    if (!known_.contains(name)) Die(absl::StrFormat("unknown flag --%s", name));
  }
}

Pattern ParsePattern(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2) {
    Die(absl::StrFormat("--pattern must be unstructured:S, per_row:S or N:M; got \"%s\"", text));
  }
  if (parts[0] == "unstructured") return Pattern::Unstructured(ParseNumber("pattern", parts[1]));
  if (parts[0] == "per_row") return Pattern::PerRow(ParseNumber("pattern", parts[1]));
  return Pattern::KeepOfGroup(static_cast<int>(ParseInteger("pattern", parts[0])),
                              static_cast<int>(ParseInteger("pattern", parts[1])));
}

int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }
int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }

}  // namespace sparsefw::bench
