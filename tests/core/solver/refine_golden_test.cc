// Swaps and reconstruction against vectors of an independent program
// (tests/golden/make_refine_golden.py): NumPy, float64, no shared code.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "sparsefw/backend.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/core/solver/golden_json.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw {
namespace {

using ::nlohmann::json;
using ::sparsefw::testing::EngineKind;
using ::sparsefw::testing::Golden;
using ::sparsefw::testing::LoadedEngine;
using ::sparsefw::testing::MaskFromRows;
using ::sparsefw::testing::MatrixOf;
using ::sparsefw::testing::PatternOf;
using ::sparsefw::testing::ReadGolden;
using ::sparsefw::testing::RowsOf;
using ::sparsefw::testing::StartingPoint;

Mask MaskOf(const json& rows) { return MaskFromRows(rows.get<std::vector<std::string>>()); }

// Takes swaps best first, as the vectors do, so the reference ends in the same
// mask. The CPU engine takes them in another order; its reconstruction is
// compared on the mask of the vectors.
TEST(RefineGoldenTest, SwapsAndReconstructionAreThoseOfTheVectors) {
  const json& layers = Golden().at("layers");
  const json cases = ReadGolden("refine.json");
  ASSERT_GT(cases.size(), 100U);
  for (const json& golden : cases) {
    SCOPED_TRACE(golden.dump().substr(0, 300));
    const json& layer = *std::find_if(layers.begin(), layers.end(), [&](const json& candidate) {
      return candidate.at("name") == golden.at("layer");
    });
    const Matrix<float> weights = MatrixOf<float>(layer.at("weights"));
    const Matrix<double> gram = MatrixOf<double>(layer.at("gram"));
    StartingPoint start = {weights.view(),
                           gram.view(),
                           PatternOf(golden.at("pattern")),
                           Matrix<float>(weights.rows(), weights.cols()),
                           MaskOf(golden.at("warm")),
                           MaskOf(golden.at("fixed"))};
    const Mask expected = MaskOf(golden.at("mask"));
    const double tolerance = 1e-9 * golden.at("full_loss").get<double>();
    for (const EngineKind kind : {EngineKind::kReference, EngineKind::kCpuFloat64}) {
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const auto engine, LoadedEngine(kind, start));
      if (kind == EngineKind::kReference) {
        SPARSEFW_ASSERT_OK_AND_ASSIGN(
            const RefinedMask refined,
            engine->Refine(start.warm, {.keep_fixed = golden.at("keep_fixed").get<bool>()}));
        EXPECT_EQ(RowsOf(refined.mask), RowsOf(expected));
        EXPECT_EQ(refined.swaps, golden.at("swaps").get<int64_t>());
      }
      // Nothing is left to do for any engine.
      SPARSEFW_ASSERT_OK_AND_ASSIGN(
          const RefinedMask again,
          engine->Refine(expected, {.keep_fixed = golden.at("keep_fixed").get<bool>()}));
      EXPECT_LE(-again.loss_change, 1e-6 * golden.at("loss").get<double>() + tolerance);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const double loss, engine->Loss(expected));
      EXPECT_NEAR(loss, golden.at("loss").get<double>(), tolerance);
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const Matrix<float> solved, engine->Reconstruct(expected, {}));
      SPARSEFW_ASSERT_OK_AND_ASSIGN(const double reached, engine->LossOfWeights(solved));
      const double best = golden.at("reconstructed_loss").get<double>();
      EXPECT_NEAR(reached, best, 2e-6 * best + tolerance);
    }
  }
}

}  // namespace
}  // namespace sparsefw
