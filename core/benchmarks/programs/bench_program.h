// Shared by all benchmark programs: flags, a clock, memory figures, and one JSON
// object on standard output. A benchmark that cannot measure ends with a message.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BENCH_PROGRAM_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BENCH_PROGRAM_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "sparsefw/backend.h"
#include "sparsefw/options.h"
#include "sparsefw/pattern.h"

namespace sparsefw::bench {

[[noreturn]] void Die(const std::string& message);

inline void OrDie(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  OrDie(result.status());
  return *std::move(result);
}

// `--name value` pairs. Every flag that was given must be asked for, so that a
// misspelt one is not measured as the default.
class Flags {
 public:
  Flags(int argc, char** argv);

  std::string Text(const std::string& name, const std::string& fallback);
  std::string Required(const std::string& name);
  int64_t Integer(const std::string& name, int64_t fallback);
  double Number(const std::string& name, double fallback);

  // Dies when a flag was given that nobody asked for.
  void Finish() const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> known_;
};

inline constexpr std::initializer_list<Preset> kPresets = {Preset::kPaper, Preset::kFast,
                                                           Preset::kBalanced, Preset::kBest};

// The value of that name, with "-" for "_" ("line-search"); otherwise InvalidArgument.
template <typename Enum>
absl::StatusOr<Enum> ValueOf(std::string_view what, std::string_view text,
                             std::initializer_list<Enum> values) {
  std::string names;
  for (const Enum value : values) {
    std::string name(NameOf(value));
    std::replace(name.begin(), name.end(), '_', '-');
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s must be one of %s; got \"%s\"", what, names, text));
}

// "unstructured:0.6", "per_row:0.6", "2:4".
Pattern ParsePattern(const std::string& text);

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Memory of this process, from /proc/self/status: resident now, and its peak. Pages of mapped files
// that were touched count.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BENCH_PROGRAM_H_
