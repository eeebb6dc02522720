// Every error of problem.h, by code, reason and the words that name the place.
#include "sparsefw/problem.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using ::absl::StatusCode;
using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::MaskFromRows;
using ::sparsefw::testing::RandomLayer;
using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TypedMatrix;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class ValidateProblemTest : public ::testing::Test {
 protected:
  Problem MakeProblem() const {
    Problem problem;
    problem.weights = layer_.weights.view();
    problem.gram = layer_.gram.view();
    problem.pattern = Pattern::KeepOfGroup(2, 4);
    return problem;
  }
  RandomLayer layer_ = MakeRandomLayer({.rows = 3, .cols = 8, .dead_columns = 1});
};

TEST_F(ValidateProblemTest, AcceptsEveryDTypeAndStride) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType gram_dtype : {DType::kF32, DType::kF64}) {
      const TypedMatrix weights(layer_.weights.view(), dtype, 3);
      const TypedMatrix gram(layer_.gram.view(), gram_dtype, 1);
      Problem problem = MakeProblem();
      problem.weights = weights.view();
      problem.gram = gram.view();
      SPARSEFW_EXPECT_OK(ValidateProblem(problem));
    }
  }
}

TEST_F(ValidateProblemTest, AcceptsSaliencyAndWarmMask) {
  const Mask warm = MaskFromRows({"11000011", "10101010", "01100110"});
  Problem problem = MakeProblem();
  problem.saliency = layer_.weights.view();
  problem.warm_mask = &warm;
  SPARSEFW_EXPECT_OK(ValidateProblem(problem));
}

TEST_F(ValidateProblemTest, RefusesEmptyDimensions) {
  Problem problem = MakeProblem();
  problem.weights = ConstMatrixView(layer_.weights.data(), DType::kF32, 0, 8);
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "weights", "[0, 8]"));
  problem.weights = ConstMatrixView(layer_.weights.data(), DType::kF32, 3, 0);
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "weights", "[3, 0]"));
  problem.weights = ConstMatrixView();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "weights"));
  problem = MakeProblem();
  problem.gram = ConstMatrixView();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "gram"));
}

TEST_F(ValidateProblemTest, RefusesAStrideBelowCols) {
  Problem problem = MakeProblem();
  problem.weights = ConstMatrixView(layer_.weights.data(), DType::kF32, 3, 8, 7);
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "stride 7"));
}

TEST_F(ValidateProblemTest, RefusesSizesThatOverflow) {
  Problem problem = MakeProblem();
  problem.weights =
      ConstMatrixView(layer_.weights.data(), DType::kF32, int64_t{1} << 40, int64_t{1} << 40);
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "weights"));
}

TEST_F(ValidateProblemTest, RefusesShapesThatDoNotMatch) {
  Problem problem = MakeProblem();
  const Matrix<double> small(7, 7);
  problem.gram = small.view();
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "SHAPE_MISMATCH", "gram must be [8, 8]", "[7, 7]"));
  const Matrix<double> flat(8, 7);
  problem.gram = flat.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH", "[8, 7]"));

  problem = MakeProblem();
  problem.saliency = layer_.weights.view().Rows(0, 2);
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "SHAPE_MISMATCH", "saliency", "[3, 8]", "[2, 8]"));

  problem = MakeProblem();
  const Mask warm(3, 9);
  problem.warm_mask = &warm;
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "SHAPE_MISMATCH", "warm_mask", "[3, 9]"));
}

TEST_F(ValidateProblemTest, RefusesDTypes) {
  const TypedMatrix wide(layer_.weights.view(), DType::kF64);
  const TypedMatrix half_gram(layer_.gram.view(), DType::kF16);
  Problem problem = MakeProblem();
  problem.weights = wide.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "DTYPE_UNSUPPORTED", "weights", "F64"));
  problem = MakeProblem();
  problem.gram = half_gram.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "DTYPE_UNSUPPORTED", "gram", "F16"));
  problem = MakeProblem();
  problem.saliency = wide.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "DTYPE_UNSUPPORTED", "saliency", "F64"));
}

TEST_F(ValidateProblemTest, RefusesThePattern) {
  Problem problem = MakeProblem();
  problem.pattern = Pattern::KeepOfGroup(2, 3);
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "PATTERN_INVALID", "cols=8", "group=3"));
}

TEST_F(ValidateProblemTest, NamesTheFirstNonFiniteWeight) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      TypedMatrix weights(layer_.weights.view(), dtype, 2);
      weights.Set(2, 1, bad);
      weights.Set(1, 7, bad);
      Problem problem = MakeProblem();
      problem.weights = weights.view();
      EXPECT_THAT(ValidateProblem(problem),
                  StatusIs(kInvalid, "NON_FINITE", "weights[1, 7]",
                           std::isnan(bad) ? "nan" : (bad > 0 ? "=inf" : "=-inf")));
    }
  }
}

TEST_F(ValidateProblemTest, NamesTheFirstNonFiniteOfGramAndSaliency) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    TypedMatrix gram(layer_.gram.view(), dtype);
    gram.Set(5, 2, kNan);
    gram.Set(6, 6, kInfinity);
    Problem problem = MakeProblem();
    problem.gram = gram.view();
    EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "NON_FINITE", "gram[5, 2]", "nan"));
  }
  Problem problem = MakeProblem();
  TypedMatrix saliency(layer_.weights.view(), DType::kF32);
  saliency.Set(0, 4, kInfinity);
  problem.saliency = saliency.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "NON_FINITE", "saliency[0, 4]", "inf"));
}

TEST_F(ValidateProblemTest, RefusesANegativeDiagonal) {
  layer_.gram(3, 3) = -1e-9;
  EXPECT_THAT(ValidateProblem(MakeProblem()),
              StatusIs(kInvalid, "GRAM_NEGATIVE_DIAGONAL", "gram[3, 3]=-1e-09"));
}

TEST_F(ValidateProblemTest, RefusesAnAsymmetryBeyondTheTolerance) {
  double largest = 0;
  for (const double value : layer_.gram.span()) largest = std::max(largest, std::fabs(value));
  layer_.gram(6, 2) += 0.9e-3 * largest;
  SPARSEFW_EXPECT_OK(ValidateProblem(MakeProblem()));
  layer_.gram(6, 2) += 0.2e-3 * largest;
  layer_.gram(7, 6) += 1;  // a later one that is worse
  layer_.gram(7, 6) += 0.1 * largest;
  EXPECT_THAT(ValidateProblem(MakeProblem()),
              StatusIs(kInvalid, "GRAM_ASYMMETRIC", "gram[2, 6]=", "gram[6, 2]=", "1e-3"));
}

TEST_F(ValidateProblemTest, ValuesCheckedBeforeAreNotReadAgain) {
  layer_.gram(3, 3) = -1;
  layer_.weights(0, 0) = static_cast<float>(kNan);
  Problem problem = MakeProblem();
  problem.values_checked = true;
  SPARSEFW_EXPECT_OK(ValidateProblem(problem));
  const Matrix<double> small(7, 7);
  problem.gram = small.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "SHAPE_MISMATCH"));
  const TypedMatrix half_gram(layer_.gram.view(), DType::kF16);
  problem.gram = half_gram.view();
  EXPECT_THAT(ValidateProblem(problem), StatusIs(kInvalid, "DTYPE_UNSUPPORTED", "gram", "F16"));
}

TEST_F(ValidateProblemTest, RefusesAnIndefiniteGram) {
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) layer_.gram(i, j) = i == j && i != 2 ? 4 : 0;
  }
  SPARSEFW_EXPECT_OK(ValidateProblem(MakeProblem()));
  layer_.gram(2, 6) = layer_.gram(6, 2) = 0.2;
  EXPECT_THAT(ValidateProblem(MakeProblem()),
              StatusIs(kInvalid, "GRAM_NOT_POSITIVE_DEFINITE", "gram[2, 6]=0.2", "gram[2, 2]=0",
                       "gram[6, 6]=4"));
  layer_.gram(2, 2) = 4;
  for (const double sign : {1.0, -1.0}) {
    layer_.gram(2, 6) = layer_.gram(6, 2) = sign * 4.99;
    SPARSEFW_EXPECT_OK(ValidateProblem(MakeProblem()));
    layer_.gram(2, 6) = layer_.gram(6, 2) = sign * 5.1;
    EXPECT_THAT(ValidateProblem(MakeProblem()),
                StatusIs(kInvalid, "GRAM_NOT_POSITIVE_DEFINITE", "gram[2, 6]="));
  }
}

TEST_F(ValidateProblemTest, RefusesWarmMasksWithWrongCounts) {
  Problem problem = MakeProblem();
  const Mask groups = MaskFromRows({"11000011", "10101011", "11101110"});
  problem.warm_mask = &groups;
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "WARM_MASK_COUNT", "warm_mask must keep 2", "columns [4, 8)",
                       "row 1", "got 3"));
  const Mask rows = MaskFromRows({"11110000", "01111000", "11111000"});
  problem.warm_mask = &rows;
  problem.pattern = Pattern::PerRow(0.5);
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "WARM_MASK_COUNT", "must keep 4", "row 2", "got 5"));
  problem.pattern = Pattern::Unstructured(0.5);
  EXPECT_THAT(ValidateProblem(problem),
              StatusIs(kInvalid, "WARM_MASK_COUNT", "must keep 12 of 24", "got 13"));
}

// Rounds to one of the formats that users hold activations and sums in.
double RoundTo(DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF16) return ToFloat(ToHalf(single));
  if (dtype == DType::kBF16) return ToFloat(ToBFloat16(single));
  return single;
}

// Activations of fewer directions than inputs, some of them copies, multiples,
// nearly or wholly dead, summed batch by batch as users do it.
Matrix<float> GramOfActivations(DType values, DType sums, double scale, uint64_t seed) {
  constexpr int64_t kInputs = 24;
  constexpr int64_t kDirections = 5;
  constexpr int64_t kTokens = 2048;
  constexpr int64_t kBatch = 32;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Matrix<double> mixture(kDirections, kInputs);
  for (double& value : mixture.span()) value = normal(random);
  Matrix<float> gram(kInputs, kInputs);
  for (int64_t batch = 0; batch < kTokens / kBatch; ++batch) {
    Matrix<double> part(kInputs, kInputs);
    for (int64_t token = 0; token < kBatch; ++token) {
      std::vector<double> x(kInputs, 0.0);
      for (int64_t k = 0; k < kDirections; ++k) {
        const double share = normal(random);
        for (int64_t j = 0; j < kInputs; ++j) x[static_cast<size_t>(j)] += share * mixture(k, j);
      }
      x[3] = x[0];
      x[4] = 3 * x[0];
      x[5] = -0.7 * x[1];
      x[6] = 0;
      x[7] *= 1e-5;
      x[8] = x[1] + 1e-3 * x[9];
      x[10] *= 30;
      for (double& value : x) value = RoundTo(values, scale * value);
      for (int64_t i = 0; i < kInputs; ++i) {
        for (int64_t j = 0; j < kInputs; ++j) {
          part(i, j) += x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)];
        }
      }
    }
    for (int64_t i = 0; i < kInputs; ++i) {
      for (int64_t j = 0; j < kInputs; ++j) {
        gram(i, j) =
            static_cast<float>(RoundTo(sums, gram(i, j) + RoundTo(sums, part(i, j) / kTokens)));
      }
    }
  }
  return gram;
}

TEST(ValidateGramTest, AcceptsEveryGramOfActivations) {
  for (const DType values : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType sums : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const double scale : {1.0, 1e-2, 1e-3}) {
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          const Matrix<float> gram = GramOfActivations(values, sums, scale, seed);
          SPARSEFW_EXPECT_OK(ValidateGram(gram.view()))
              << DTypeName(values) << " summed in " << DTypeName(sums) << ", scale " << scale;
          const TypedMatrix wide(gram.view(), DType::kF64);
          SPARSEFW_EXPECT_OK(ValidateGram(wide.view()));
        }
      }
    }
  }
}

// A block of the last tile, so that every tile is looked at.
TEST(ValidateGramTest, FindsAnIndefiniteBlockOnManyTiles) {
  Matrix<float> gram(300, 300);
  for (int64_t i = 0; i < 300; ++i) gram(i, i) = 1;
  gram(299, 299) = 0;
  gram(290, 299) = gram(299, 290) = -0.5F;
  EXPECT_THAT(ValidateGram(gram.view()),
              StatusIs(kInvalid, "GRAM_NOT_POSITIVE_DEFINITE", "gram[290, 299]=-0.5"));
}

// Large enough for several blocks of the parallel passes.
TEST(ValidateFiniteTest, NamesTheLowestIndexOnManyBlocks) {
  Matrix<float> matrix(700, 900);
  for (const int64_t row : {699, 350, 349, 20}) {
    matrix(row, 899) = static_cast<float>(kNan);
    const std::string place = "m[" + std::to_string(row) + ", 899]";
    for (int repeat = 0; repeat < 5; ++repeat) {
      EXPECT_THAT(ValidateFinite(matrix.view(), "m"), StatusIs(kInvalid, "NON_FINITE", place));
    }
  }
}

TEST(ValidateGramTest, LooksAtEveryTile) {
  Matrix<double> gram(300, 300);
  for (int64_t i = 0; i < 300; ++i) gram(i, i) = 1;
  SPARSEFW_EXPECT_OK(ValidateGram(gram.view()));
  gram(299, 0) = 0.5;
  EXPECT_THAT(ValidateGram(gram.view()), StatusIs(kInvalid, "GRAM_ASYMMETRIC", "gram[0, 299]=0"));
  gram(299, 0) = 0;
  gram(130, 131) = -0.5;
  EXPECT_THAT(ValidateGram(gram.view()),
              StatusIs(kInvalid, "GRAM_ASYMMETRIC", "gram[130, 131]=-0.5"));
  gram(130, 131) = kInfinity;
  EXPECT_THAT(ValidateGram(gram.view()), StatusIs(kInvalid, "NON_FINITE", "gram[130, 131]=inf"));
}

TEST(ValidateGramTest, AcceptsAnAllZeroGramAndHugeValues) {
  Matrix<double> gram(3, 3);
  SPARSEFW_EXPECT_OK(ValidateGram(gram.view()));
  gram(0, 0) = gram(1, 1) = 1.7e308;  // their sum overflows, they do not
  SPARSEFW_EXPECT_OK(ValidateGram(gram.view()));
}

}  // namespace
}  // namespace sparsefw
