// The CPU engine against the reference on layers of a real model.
//
// 24 rows of each, unless SPARSEFW_LONG_TESTS=1 asks for all: the reference
// engine is slow, and rows enter the loss one by one, so fewer of them are no
// easier.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>

#include "gtest/gtest.h"
#include "sparsefw/problem.h"
#include "sparsefw/safetensors.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"

namespace sparsefw {
namespace {

using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MakeStartingPoint;
using ::sparsefw::testing::NameOf;
using ::sparsefw::testing::StartingPoint;

int64_t RowsUsed(int64_t rows) {
  const char* all = std::getenv("SPARSEFW_LONG_TESTS");
  const bool long_tests = all != nullptr && std::string_view(all) == "1";
  return long_tests ? rows : std::min<int64_t>(rows, 24);
}

class FixtureTest : public ::testing::TestWithParam<std::tuple<std::string, Pattern, StepRule>> {};

TEST_P(FixtureTest, RelaxedLossAfter200IterationsIsThatOfTheReference) {
  const auto& [name, pattern, rule] = GetParam();
  const std::string path =
      std::string(SPARSEFW_SOURCE_DIR) + "/tests/fixtures/minilm/" + name + ".safetensors";
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto file, SafetensorsFile::Open(path));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* weight_entry, file->Find(name + ".weight"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto* gram_entry, file->Find("gram"));
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView weights, weight_entry->AsMatrix());
  SPARSEFW_ASSERT_OK_AND_ASSIGN(const ConstMatrixView gram, gram_entry->AsMatrix());
  for (const double alpha : {0.0, 0.5, 0.9, 1.0}) {
    SCOPED_TRACE(::testing::Message() << "alpha " << alpha);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(
        const StartingPoint start,
        MakeStartingPoint(weights.Rows(0, RowsUsed(weights.rows())), gram, pattern, {}, alpha));
    const StepRequest request = {.count = 200, .rule = rule};
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto reference,
                                  LoadedEngine(EngineKind::kReference, start));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats expected, reference->Step(request));
    absl::StatusOr<const Backend*> cpu = FindBackend("cpu");
    SPARSEFW_ASSERT_OK(cpu);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(**cpu, start, {.threads = 2}));
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const StepStats actual, engine->Step(request));
    EXPECT_NEAR(actual.relaxed_loss, expected.relaxed_loss, 1e-4 * expected.relaxed_loss);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const RoundedMask rounded, engine->Round());
    SPARSEFW_EXPECT_OK(ValidateMaskCounts(rounded.mask, pattern, "rounded"));
    EXPECT_TRUE(::sparsefw::testing::IsSubset(start.fixed, rounded.mask));
  }
}

INSTANTIATE_TEST_SUITE_P(
    MiniLm, FixtureTest,
    ::testing::Combine(::testing::Values("encoder.layer.0.attention.self.query",
                                         "encoder.layer.2.intermediate.dense",
                                         "encoder.layer.5.attention.output.dense"),
                       ::testing::Values(Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                         Pattern::KeepOfGroup(2, 4)),
                       ::testing::Values(StepRule::kOpenLoop, StepRule::kLineSearch)),
    [](const auto& test) {
      std::string name = std::get<0>(test.param);
      std::replace(name.begin(), name.end(), '.', '_');
      return name + "_" + NameOf(std::get<1>(test.param)) + "_" +
             std::string(NameOf(std::get<2>(test.param)));
    });

}  // namespace
}  // namespace sparsefw
