// The engines that must all do the same, and their starting points.
#ifndef SPARSEFW_TESTS_CORE_ENGINES_ENGINE_KINDS_H_
#define SPARSEFW_TESTS_CORE_ENGINES_ENGINE_KINDS_H_

#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_macros.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw::testing {

// Every engine is tested in both precisions, whatever it would choose itself.
enum class EngineKind { kReference, kCpuFloat64, kCpuFloat32, kCudaFloat64, kCudaFloat32 };

inline constexpr EngineKind kAllEngines[] = {EngineKind::kReference, EngineKind::kCpuFloat64,
                                             EngineKind::kCpuFloat32, EngineKind::kCudaFloat64,
                                             EngineKind::kCudaFloat32};
// Those that are compared with the reference.
inline constexpr EngineKind kFastEngines[] = {EngineKind::kCpuFloat64, EngineKind::kCpuFloat32,
                                              EngineKind::kCudaFloat64, EngineKind::kCudaFloat32};

inline bool IsCuda(EngineKind kind) {
  return kind == EngineKind::kCudaFloat64 || kind == EngineKind::kCudaFloat32;
}
inline bool IsFloat32(EngineKind kind) {
  return kind == EngineKind::kCpuFloat32 || kind == EngineKind::kCudaFloat32;
}

inline std::string NameOf(EngineKind kind) {
  if (kind == EngineKind::kReference) return "reference";
  return std::string(IsCuda(kind) ? "cuda" : "cpu") + (IsFloat32(kind) ? "_float32" : "_float64");
}

// As a test name: letters, digits and underscores.
inline std::string NameOf(const Pattern& pattern) {
  std::string name = ToString(pattern);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline absl::StatusOr<const Backend*> BackendOf(EngineKind kind) {
  if (kind == EngineKind::kReference) return FindBackend("reference");
  return FindBackend(IsCuda(kind) ? "cuda" : "cpu");
}

inline absl::StatusOr<std::unique_ptr<Engine>> LoadedEngine(
    EngineKind kind, const StartingPoint& start, EngineOptions options = {.threads = 2}) {
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, BackendOf(kind));
  options.precision = IsFloat32(kind) ? Precision::kFloat32 : Precision::kFloat64;
  return LoadedEngine(*backend, start, options);
}

// A machine without the device is no failure, unless the caller says that
// there must be one.
inline bool GpuRequired() {
  const char* value = std::getenv("SPARSEFW_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace sparsefw::testing

// In SetUp or a test body: skips the test where there is no device for `kind`.
#define SPARSEFW_NEED_DEVICE(kind)                                                 \
  do {                                                                             \
    const auto sparsefw_backend = ::sparsefw::testing::BackendOf(kind);            \
    if (!sparsefw_backend.ok()) {                                                  \
      if (::sparsefw::testing::GpuRequired()) FAIL() << sparsefw_backend.status(); \
      GTEST_SKIP() << "no device: " << sparsefw_backend.status().message();        \
    }                                                                              \
  } while (false)

#endif  // SPARSEFW_TESTS_CORE_ENGINES_ENGINE_KINDS_H_
