// Conjugate gradients on many rows and what makes them few.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/src/cpu/reconstruct/nystrom_preconditioner.h"
#include "core/src/cpu/reconstruct/row_conjugate_gradients.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;

constexpr int64_t kRightSides = 5;

// G padded to whole words, a mask of half of the columns, right-hand sides.
struct Systems {
  explicit Systems(int64_t cols, int64_t tokens = 0, int64_t dead = 0)
      : gram(cols, (cols + 63) / 64 * 64),
        mask(kRightSides, cols),
        residual(kRightSides, gram.cols()) {
    const RandomLayer layer = MakeRandomLayer({.rows = kRightSides,
                                               .cols = cols,
                                               .tokens = tokens,
                                               .correlation = 0.95,
                                               .dead_columns = dead,
                                               .seed = 7});
    for (int64_t i = 0; i < cols; ++i) {
      for (int64_t j = 0; j < cols; ++j) gram(i, j) = layer.gram(i, j);
    }
    Random random(8);
    for (int64_t row = 0; row < kRightSides; ++row) {
      // In the range of G, as residuals are.
      for (int64_t i = 0; i < cols; ++i) {
        mask.Set(row, i, random.Uniform() < 0.5);
        for (int64_t j = 0; j < cols; ++j) {
          residual(row, j) += gram(i, j) * static_cast<double>(layer.weights(row, i));
        }
      }
    }
  }
  // r - G_SS d on S
  double Left(int64_t row, const double* d) const {
    double squares = 0;
    for (int64_t i = 0; i < gram.rows(); ++i) {
      if (!mask.Get(row, i)) continue;
      double left = residual(row, i);
      for (int64_t j = 0; j < gram.rows(); ++j) left -= gram(i, j) * d[j];
      squares += left * left / std::max(gram(i, i), std::numeric_limits<double>::min());
    }
    return std::sqrt(squares);
  }
  Matrix<double> gram;
  Mask mask;
  Matrix<double> residual;
};

double Energy(const Systems& systems, int64_t row, const double* d) {
  double energy = 0;
  for (int64_t i = 0; i < systems.gram.rows(); ++i) energy += systems.residual(row, i) * d[i];
  return energy;
}

TEST(RowConjugateGradientsTest, SolvesEveryRow) {
  for (const int64_t cols : {int64_t{1}, int64_t{3}, int64_t{40}, int64_t{300}}) {
    const Systems systems(cols);
    RowConjugateGradients<double> gradients(systems.gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(
        gradients.Solve(systems.residual, {}, {.iterations = 200}, ParallelContext(2, nullptr)));
    const std::vector<double> zero(static_cast<size_t>(cols));
    for (int64_t row = 0; row < kRightSides; ++row) {
      EXPECT_LE(systems.Left(row, gradients.solution(row)), 1e-6 * systems.Left(row, zero.data()))
          << cols << " " << row;
      for (int64_t j = 0; j < cols; ++j) {
        if (!systems.mask.Get(row, j)) {
          EXPECT_EQ(gradients.solution(row)[j], 0);
        }
      }
    }
  }
}

// Fewer samples than columns, inputs that never vary, no input at all. A row is done at the floor:
// how far beneath it the last step goes differs between processors.
TEST(RowConjugateGradientsTest, SingularGramsAreNoObstacle) {
  for (const auto& [tokens, dead] : {std::pair(30, 0), std::pair(400, 60), std::pair(10, 20)}) {
    const Systems systems(200, tokens, dead);
    RowConjugateGradients<double> gradients(systems.gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(
        gradients.Solve(systems.residual, {}, {.iterations = 300}, ParallelContext(2, nullptr)));
    const std::vector<double> zero(200);
    for (int64_t row = 0; row < kRightSides; ++row) {
      EXPECT_LE(systems.Left(row, gradients.solution(row)),
                kReconstructFloor * systems.Left(row, zero.data()))
          << tokens << " " << dead;
    }
  }
  Systems nothing(70);
  nothing.gram = Matrix<double>(70, 128);
  nothing.residual = Matrix<double>(kRightSides, 128);
  RowConjugateGradients<double> gradients(nothing.gram, nothing.mask, 0, kRightSides);
  SPARSEFW_ASSERT_OK(gradients.Solve(nothing.residual, {}, {}, ParallelContext(1, nullptr)));
  for (int64_t j = 0; j < 70; ++j) EXPECT_EQ(gradients.solution(0)[j], 0);
}

// An input so small that its reciprocal is beyond float32 counts as none.
TEST(RowConjugateGradientsTest, TheSmallestInputsDoNoHarm) {
  const Systems systems(80);
  Matrix<float> gram(80, systems.gram.cols());
  Matrix<float> residual(kRightSides, systems.gram.cols());
  for (const float tiny : {1e-39F, 1e-37F, 1e-33F, 1e-30F}) {
    const auto share = [&](int64_t j) {
      return j % 9 == 0 ? std::sqrt(static_cast<double>(tiny)) : 1;
    };
    for (int64_t i = 0; i < 80; ++i) {
      for (int64_t j = 0; j < 80; ++j) {
        gram(i, j) = static_cast<float>(systems.gram(i, j) * share(i) * share(j));
      }
    }
    for (int64_t row = 0; row < kRightSides; ++row) {
      for (int64_t j = 0; j < 80; ++j) {
        residual(row, j) = static_cast<float>(systems.residual(row, j) * share(j));
      }
    }
    RowConjugateGradients<float> gradients(gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(
        gradients.Solve(residual, {}, {.iterations = 50}, ParallelContext(2, nullptr)));
    for (int64_t row = 0; row < kRightSides; ++row) {
      for (int64_t j = 0; j < 80; ++j) {
        EXPECT_TRUE(std::isfinite(gradients.solution(row)[j])) << tiny << " " << row << " " << j;
      }
    }
  }
}

// What the strong directions of G cost without it: as many steps of plain conjugate gradients,
// with the diagonal, are far behind.
TEST(RowConjugateGradientsTest, FewStepsAreEnoughWhereDirectionsAreStrong) {
  const Systems systems(300);
  RowConjugateGradients<double> few(systems.gram, systems.mask, 0, kRightSides);
  RowConjugateGradients<double> many(systems.gram, systems.mask, 0, kRightSides);
  const ParallelContext context(2, nullptr);
  SPARSEFW_ASSERT_OK(few.Solve(systems.residual, {}, {.iterations = 8}, context));
  SPARSEFW_ASSERT_OK(many.Solve(systems.residual, {}, {.iterations = 300}, context));
  for (int64_t row = 0; row < kRightSides; ++row) {
    const double best = Energy(systems, row, many.solution(row));
    EXPECT_GT(Energy(systems, row, few.solution(row)), (1 - 1e-4) * best) << row;
  }
}

TEST(RowConjugateGradientsTest, ARowThatWasSolvedBeforeIsLeftAlone) {
  const Systems systems(100);
  const ParallelContext context(2, nullptr);
  Matrix<double> tiny(kRightSides, systems.gram.cols());
  for (int64_t i = 0; i < tiny.size(); ++i) tiny.data()[i] = 1e-9 * systems.residual.data()[i];
  const std::vector<double> losses(kRightSides, 1e6);
  for (const bool before : {true, false}) {
    RowConjugateGradients<double> solved(systems.gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(solved.Solve(tiny, losses, {.solved_before = before}, context));
    EXPECT_EQ(solved.nothing_to_do(), before);
    RowConjugateGradients<double> open(systems.gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(open.Solve(systems.residual, losses, {.solved_before = before}, context));
    EXPECT_FALSE(open.nothing_to_do());
  }
}

// Two inputs that are next to the same, of which one is removed: the residual is small beside the
// loss, and yet a step gains half of it.
TEST(RowConjugateGradientsTest, DirectionsThatAreNextToNothingAreNotSkipped) {
  constexpr double kEpsilon = 1e-7;
  const double delta = std::sqrt(kEpsilon / 4);
  Matrix<double> gram(16, 64);
  for (int64_t i = 0; i < 16; ++i) gram(i, i) = 1;
  gram(0, 1) = gram(1, 0) = 1 - kEpsilon;
  gram(0, 2) = gram(2, 0) = delta;
  gram(1, 2) = gram(2, 1) = -delta;
  Mask mask(1, 16);
  for (int64_t j = 0; j < 16; ++j) mask.Set(0, j, j != 2);
  Matrix<double> residual(1, 64);  // w = e_2
  for (int64_t j = 0; j < 16; ++j) residual(0, j) = gram(2, j);
  RowConjugateGradients<double> gradients(gram, mask, 0, 1);
  const std::vector<double> losses = {1};
  SPARSEFW_ASSERT_OK(gradients.Solve(residual, losses, {}, ParallelContext(1, nullptr)));
  double gain = 0;  // r.d, at the solution
  for (int64_t j = 0; j < 16; ++j) gain += residual(0, j) * gradients.solution(0)[j];
  EXPECT_NEAR(gain, 0.5, 1e-3);
}

TEST(NystromPreconditionerTest, TheSameBitsForAnyNumberOfThreads) {
  const Systems systems(300);
  std::vector<Matrix<double>> out;
  for (const int threads : {1, 2, 3}) {
    const ParallelContext context(threads, nullptr);
    NystromPreconditioner<double> preconditioner(systems.gram, systems.mask, 0, kRightSides);
    SPARSEFW_ASSERT_OK(preconditioner.Prepare(context));
    const std::vector<int64_t> rows = {0, 1, 2, 3, 4};
    out.emplace_back(kRightSides, systems.gram.cols());
    SPARSEFW_ASSERT_OK(preconditioner.Apply(systems.residual, rows, out.back(), context));
    EXPECT_TRUE(
        std::equal(out.back().data(), out.back().data() + out.back().size(), out.front().data()))
        << threads;
  }
}

TEST(RowConjugateGradientsTest, AStopIsCancelled) {
  const Systems systems(100);
  StopSignal stop;
  stop.Request();
  RowConjugateGradients<double> gradients(systems.gram, systems.mask, 0, kRightSides);
  EXPECT_EQ(gradients.Solve(systems.residual, {}, {}, ParallelContext(2, &stop)).code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sparsefw::cpu
