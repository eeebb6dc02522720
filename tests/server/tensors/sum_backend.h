// A backend for tests of Gram sums: it has nothing but those.
#ifndef SPARSEFW_TESTS_SERVER_TENSORS_SUM_BACKEND_H_
#define SPARSEFW_TESTS_SERVER_TENSORS_SUM_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

class SumBackend : public Backend {
 public:
  std::string_view name() const override { return "device"; }
  DeviceDescription Describe() const override { return {}; }
  absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions&) const override {
    return absl::UnimplementedError("not used here");
  }
  // Those of the CPU unless overridden.
  absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateGramAccumulator(
      int64_t d_in, int threads) const override {
    return (*FindBackend("cpu"))->CreateGramAccumulator(d_in, threads);
  }
  int64_t EstimateHostBytes(int64_t, int64_t, const MemoryRequest&) const override { return 0; }
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_TENSORS_SUM_BACKEND_H_
