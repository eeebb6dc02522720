// The measurements of sparsefw-bench-device, one function each. A
// case is a JSON object; so is the answer. Defaults stand at the function.
//
// Everything else is prepared outside the clock: the layer, its starting
// points, which are kept, and whatever an engine does only once.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_DEVICE_MEASURES_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_DEVICE_MEASURES_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {

// One backend and one layer. Not thread-safe.
class DeviceMeasures {
 public:
  using Json = nlohmann::ordered_json;

  // threads: of the host; 0: all cores. `layer` is empty where only Gram sums
  // are measured.
  DeviceMeasures(const Backend& backend, int threads, LayerFile layer);

  // {"measure": NAME, ...}; an unknown name or a value of the wrong type is an InvalidArgument.
  absl::StatusOr<Json> Run(const Json& request);

 private:
  // {pattern, alpha 0.9, rule "open-loop", precision "fp32", form "auto", screened true,
  //  iterations 200, marks [], warm_up 5, seconds 30, all_seconds, repetitions 1}; also called
  //  "forms"
  // -> {load_seconds, runs: [[mark]], capture_failures}. A new engine is loaded
  // and evaluates where it stands, load_seconds, upload included; it takes
  // warm_up steps; then every run is loaded anew. "all_seconds": no run is begun that would not
  // fit.
  absl::StatusOr<Json> Iterations(const Json& request);

  // {pattern, alpha 0.9, steps 100, precision "fp32", seconds 30}
  // -> the mask of so many line-search steps, and seconds of Round, Loss, Refine
  // (at most `seconds`) and Reconstruct (likewise) on it.
  absl::StatusOr<Json> Stages(const Json& request);

  // {engines 4, pattern, alpha 0.9, iterations 200, precision "fp32"}
  // -> seconds for so many engines, each on a thread of its own, to take the
  // steps at the same time.
  absl::StatusOr<Json> Parallel(const Json& request);

  // Called "preset": {pattern, preset} -> one whole Solve: seconds, losses
  absl::StatusOr<Json> SolveWhole(const Json& request);

  // {cols 4096, tokens 8192, dtype "bf16", repetitions 5}
  // -> seconds for each Add of so many tokens in host memory, the sum read at
  // the end within the clock.
  absl::StatusOr<Json> Gram(const Json& request);

  absl::StatusOr<EngineProblem> StartOf(const Json& request);

  const Backend& backend_;
  int threads_;
  LayerFile layer_;
  std::map<std::string, StartingPoint> starts_;
};

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_DEVICE_MEASURES_H_
