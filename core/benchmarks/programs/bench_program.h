// Shared by all benchmark programs: flags, a clock, memory figures, and one JSON
// object on standard output. A benchmark that cannot measure ends with a message.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BENCH_PROGRAM_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_BENCH_PROGRAM_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/backend.h"
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
  std::vector<int64_t> Integers(const std::string& name);  // "20,50"; empty when not given

  // Dies when a flag was given that nobody asked for.
  void Finish() const;

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> known_;
};

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
