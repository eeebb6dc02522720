// Measures any backend on one layer, case after case, in one process.
//
//   sparsefw-bench-device --device cuda [--layer FILE] [--threads T]
//
// Prints one line that says what the backend and the layer are, then answers
// every line of standard input, a JSON object (device_measures.h), with one:
// the case's figures, or {"error": MESSAGE}. A case that a backend refuses ends
// nothing. Ends with standard input.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/device_measures.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {
namespace {

using Json = nlohmann::ordered_json;

Json Answer(DeviceMeasures& measures, const std::string& line) {
  const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return {{"error", "every line must be a JSON object"}};
  const absl::StatusOr<Json> answer = measures.Run(request);
  if (!answer.ok()) return {{"error", answer.status().ToString()}};
  return *answer;
}

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const Backend* backend = OrDie(FindBackend(flags.Required("device")));
  const std::string path = flags.Text("layer", "");
  const auto threads = static_cast<int>(flags.Integer("threads", 0));
  flags.Finish();

  const LayerFile layer = path.empty() ? LayerFile() : OpenLayer(path);
  const DeviceDescription device = backend->Describe();
  std::cout << Json{{"backend", std::string(backend->name())},
                    {"name", device.name},
                    {"description", device.description},
                    {"memory_bytes", device.memory_bytes},
                    {"rows", layer.weights.rows()},
                    {"cols", layer.weights.cols()}}
                   .dump()
            << std::endl;
  DeviceMeasures measures(*backend, threads, layer);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (!line.empty()) std::cout << Answer(measures, line).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }
