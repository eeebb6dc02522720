// The kernels of the CUDA engine, part by part (smoke.h):
//
//   sparsefw-bench-smoke --list 1                     the names of all parts, one a line
//   sparsefw-bench-smoke --part NAME [--rows R] [--cols C] [--launches N]
//
// Event times at the size of a large layer, the median of the launches of every kernel.
//
// Linked with the engine's kernels, which the module does not export. Ends with status 1 when
// something is wrong.
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "core/benchmarks/programs/smoke/smoke.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kLargeSize = 4096;
constexpr int64_t kTimedLaunches = 7;

struct Part {
  std::string name;
  std::function<void(Smoke&, int64_t rows, int64_t cols)> run;
};

std::vector<Part> AllParts() {
  std::vector<Part> parts = {
      {"device", [](Smoke& smoke, int64_t, int64_t) { SmokeDevice(smoke); }}};
  for (const std::string pattern : {"unstructured:0.6", "2:4"}) {
    parts.push_back({"iteration-" + pattern, [pattern](Smoke& smoke, int64_t rows, int64_t cols) {
                       SmokeIteration(smoke, pattern, rows, cols);
                     }});
  }
  parts.push_back({"capture", SmokeCapture});
  parts.push_back({"prune", SmokePrune});
  parts.push_back({"refine", SmokeRefine});
  parts.push_back({"joint", SmokeJoint});
  return parts;
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const std::string wanted = flags.Text("part", "");
  const bool list = flags.Integer("list", 0) != 0;
  const int64_t rows = flags.Integer("rows", kLargeSize);
  const int64_t cols = flags.Integer("cols", kLargeSize);
  const int64_t launches = flags.Integer("launches", kTimedLaunches);
  flags.Finish();
  if (rows < 1 || cols < 1) Die("--rows and --cols must be at least 1");
  if (launches < 1 || launches > 1000) Die("--launches must be in [1, 1000]");
  std::string known;
  for (const Part& part : AllParts()) {
    known += known.empty() ? part.name : ", " + part.name;
    if (list) std::cout << part.name << '\n';
    if (list || part.name != wanted) continue;
    Smoke smoke(static_cast<int>(launches));
    part.run(smoke, rows, cols);
    return smoke.failed() ? 1 : 0;
  }
  if (!list) Die("--part must be one of " + known + "; got \"" + wanted + "\"");
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
