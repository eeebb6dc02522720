// The engines that must all do the same, and their starting points.
#ifndef SPARSEFW_TESTS_CORE_ENGINE_KINDS_H_
#define SPARSEFW_TESTS_CORE_ENGINE_KINDS_H_

#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/src/cpu/cpu_engine.h"
#include "core/src/reference/reference_backend.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw::testing {

// The CPU engine is tested in both precisions, whatever it would choose itself.
enum class EngineKind { kReference, kCpuFloat64, kCpuFloat32 };

inline std::string NameOf(EngineKind kind) {
  if (kind == EngineKind::kReference) return "reference";
  return kind == EngineKind::kCpuFloat64 ? "cpu_float64" : "cpu_float32";
}

inline std::string NameOf(StepRule rule) {
  return rule == StepRule::kOpenLoop ? "open_loop" : "line_search";
}

// As a test name: letters, digits and underscores.
inline std::string NameOf(const Pattern& pattern) {
  std::string name = ToString(pattern);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline absl::StatusOr<std::unique_ptr<Engine>> LoadedEngine(
    EngineKind kind, const StartingPoint& start, const EngineOptions& options = {.threads = 2}) {
  if (kind == EngineKind::kReference) return LoadedEngine(ReferenceBackend(), start, options);
  const auto precision =
      kind == EngineKind::kCpuFloat64 ? cpu::Precision::kFloat64 : cpu::Precision::kFloat32;
  auto engine = std::make_unique<cpu::CpuEngine>(options, precision);
  SPARSEFW_RETURN_IF_ERROR(engine->Load(start.problem()));
  return engine;
}

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_ENGINE_KINDS_H_
