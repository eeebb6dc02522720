// Parts of the joint search of the CPU engine: the tableau and its kernels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/src/cpu/joint/joint_kernels.h"
#include "core/src/cpu/joint/tableau.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;

constexpr int64_t kCols = 90;
constexpr int64_t kGramStride = 128;  // whole words of 64

// One row with H = G + I, b and c.
struct Row {
  explicit Row(uint64_t seed) {
    const RandomLayer layer = MakeRandomLayer({.rows = 1, .cols = kCols, .seed = seed});
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j < kCols; ++j) h(i, j) = layer.gram(i, j) + (i == j ? 1 : 0);
    }
    for (int64_t i = 0; i < kCols; ++i) {
      for (int64_t j = 0; j < kCols; ++j) {
        products[static_cast<size_t>(i)] += h(i, j) * static_cast<double>(layer.weights(0, j));
      }
      energy += products[static_cast<size_t>(i)] * static_cast<double>(layer.weights(0, i));
    }
  }
  Matrix<double> h{kCols, kGramStride};
  std::vector<double> products = std::vector<double>(kCols);
  double energy = 0;
};

std::vector<int32_t> Range(int32_t first, int32_t end) {
  std::vector<int32_t> columns(static_cast<size_t>(end - first));
  std::iota(columns.begin(), columns.end(), first);
  return columns;
}

using RowTableau = Tableau<double>;

// Every entry, target and the loss; positions of `b` are `shift` higher.
void ExpectSame(RowTableau& a, RowTableau& b, int64_t shift) {
  a.Flush();
  b.Flush();
  EXPECT_NEAR(a.loss(), b.loss(), 1e-9 * std::fabs(b.loss()));
  std::vector<double> row_a(static_cast<size_t>(a.stride()));
  std::vector<double> row_b(static_cast<size_t>(b.stride()));
  for (int64_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a.column(i), b.column(i + shift));
    EXPECT_EQ(a.inside(i), b.inside(i + shift));
    EXPECT_NEAR(a.targets()[i], b.targets()[i + shift], 1e-8);
    a.Fetch(i, row_a.data());
    b.Fetch(i + shift, row_b.data());
    for (int64_t j = 0; j < a.size(); ++j) {
      EXPECT_NEAR(row_a[static_cast<size_t>(j)], row_b[static_cast<size_t>(j + shift)],
                  1e-8 * (1 + std::fabs(row_b[static_cast<size_t>(j + shift)])))
          << i << " " << j;
    }
  }
}

void SweepAt(RowTableau& tableau, int64_t position) {
  std::vector<double> column(static_cast<size_t>(tableau.stride()));
  if (!tableau.HasRoom(1)) tableau.Flush();
  tableau.Fetch(position, column.data());
  tableau.Sweep(position, column.data());
}

// Columns eliminated or swept at once are those that are swept one by one.
TEST(TableauTest, BuildIsOneSweepAfterAnother) {
  const Row row(1);
  RowTableau built(row.h, kCols);
  built.Build(row.products.data(), row.energy, Range(0, 25), Range(25, 50), Range(50, 90));
  RowTableau swept(row.h, kCols);
  swept.Build(row.products.data(), row.energy, {}, {}, Range(0, 90));
  for (int64_t i = 0; i < 50; ++i) SweepAt(swept, i);
  ExpectSame(built, swept, 25);
}

// Whatever order the columns of the three kinds have among each other.
TEST(TableauTest, MixedColumnsAreTakenFromTheirPlaces) {
  const Row row(6);
  std::vector<int32_t> fixed;
  std::vector<int32_t> kept;
  std::vector<int32_t> outside;
  for (int32_t j = 0; j < kCols; ++j) {
    (j % 7 < 2 ? fixed : j % 7 < 5 ? kept : outside).push_back(j * 59 % 90);
  }
  for (std::vector<int32_t>* columns : {&fixed, &kept, &outside}) {
    std::sort(columns->begin(), columns->end());
  }
  RowTableau built(row.h, kCols);
  built.Build(row.products.data(), row.energy, fixed, kept, outside);
  RowTableau swept(row.h, kCols);
  swept.Build(row.products.data(), row.energy, {}, {}, Range(0, 90));
  for (const int32_t column : fixed) SweepAt(swept, column);
  for (const int32_t column : kept) SweepAt(swept, column);
  swept.Flush();
  EXPECT_NEAR(built.loss(), swept.loss(), 1e-9 * swept.loss());
  std::vector<double> row_a(static_cast<size_t>(built.stride()));
  std::vector<double> row_b(static_cast<size_t>(swept.stride()));
  for (int64_t i = 0; i < built.size(); ++i) {
    built.Fetch(i, row_a.data());
    swept.Fetch(built.column(i), row_b.data());
    for (int64_t j = 0; j < built.size(); ++j) {
      const double expected = row_b[static_cast<size_t>(built.column(j))];
      EXPECT_NEAR(row_a[static_cast<size_t>(j)], expected, 1e-8 * (1 + std::fabs(expected)))
          << i << " " << j;
    }
  }
}

TEST(TableauTest, SweepingOutUndoesSweepingIn) {
  const Row row(2);
  RowTableau once(row.h, kCols);
  RowTableau twice(row.h, kCols);
  for (RowTableau* tableau : {&once, &twice}) {
    tableau->Build(row.products.data(), row.energy, Range(0, 10), Range(10, 40), Range(40, 90));
  }
  for (const int64_t position : {3, 50, 7, 60, 50, 7}) SweepAt(twice, position);
  for (const int64_t position : {60, 3}) SweepAt(once, position);
  ExpectSame(twice, once, 0);
  // What it says a sweep changes is what it changes.
  const double before = once.loss();
  const double change = once.Change(12);
  SweepAt(once, 12);
  EXPECT_NEAR(once.loss() - before, change, 1e-9 * before);
}

// Columns that come later are as if they had been there from the start.
TEST(TableauTest, BorderedColumnsAreThoseOfALargerOne) {
  const Row row(4);
  RowTableau whole(row.h, kCols);
  whole.Build(row.products.data(), row.energy, Range(0, 20), Range(20, 45), Range(45, 90));
  RowTableau grown(row.h, kCols);
  grown.Build(row.products.data(), row.energy, Range(0, 20), Range(20, 45), Range(45, 70));
  for (const int64_t position : {2, 30, 40}) {
    SweepAt(whole, position);
    SweepAt(grown, position);
  }
  whole.Flush();
  grown.Flush();
  EXPECT_EQ(grown.Border(row.products.data(), Range(70, 82)), 12);
  EXPECT_EQ(grown.Border(row.products.data(), Range(82, 90)), 8);
  EXPECT_EQ(grown.size(), 70);
  for (const int64_t position : {60, 2, 5}) {
    SweepAt(whole, position);
    SweepAt(grown, position);
  }
  ExpectSame(grown, whole, 0);
}

TEST(TableauTest, WeightsSolveTheNormalEquations) {
  const Row row(5);
  RowTableau tableau(row.h, kCols);
  tableau.Build(row.products.data(), row.energy, Range(0, 20), Range(20, 45), Range(45, 90));
  SweepAt(tableau, 3);
  SweepAt(tableau, 40);
  std::vector<double> weights(kCols);
  tableau.Weights(weights.data());
  double loss = row.energy;
  for (int64_t i = 0; i < kCols; ++i) {
    const auto index = static_cast<size_t>(i);
    const bool kept = (i < 45 && i != 23) || i == 60;
    EXPECT_EQ(weights[index] != 0, kept) << i;
    double residual = row.products[index];
    for (int64_t j = 0; j < kCols; ++j) residual -= row.h(i, j) * weights[static_cast<size_t>(j)];
    if (kept) {
      EXPECT_NEAR(residual, 0, 1e-8 * row.h(i, i)) << i;
    }
    loss -= weights[index] * row.products[index];
  }
  EXPECT_NEAR(tableau.loss(), loss, 1e-8 * row.energy);
}

// One term after the other, in sizes with and without whole tiles; what is left of the diagonal
// of an upper sum does not matter.
TEST(JointKernelsTest, OuterProductsAreSubtracted) {
  for (const int64_t size : {1, 7, 8, 50, 131}) {
    for (const bool upper : {false, true}) {
      const int64_t stride = size + kKernelSlack;
      const int64_t count = 5;
      Random random(static_cast<uint64_t>(size));
      Matrix<float> left(count, stride);
      Matrix<float> right(count, stride);
      Matrix<float> sum(size, stride);
      for (Matrix<float>* matrix : {&left, &right, &sum}) {
        for (float& value : matrix->span()) value = static_cast<float>(random.Normal());
      }
      Matrix<double> expected(size, size);
      const int64_t begin = size / 3;
      for (int64_t i = 0; i < size; ++i) {
        for (int64_t j = 0; j < size; ++j) {
          expected(i, j) = static_cast<double>(sum(i, j));
          for (int64_t k = 0; k < count && i >= begin; ++k) {
            const double term = static_cast<double>(left(k, i)) * static_cast<double>(right(k, j));
            expected(i, j) -= term;
          }
        }
      }
      KernelsOfJointSearch<float>().subtract_outer_products({.begin = begin,
                                                             .end = size,
                                                             .size = size,
                                                             .count = count,
                                                             .stride = stride,
                                                             .left = left.data(),
                                                             .right = right.data(),
                                                             .sum = sum.data(),
                                                             .sum_stride = stride,
                                                             .upper = upper});
      for (int64_t i = 0; i < size; ++i) {
        for (int64_t j = upper ? i : 0; j < size; ++j) {
          EXPECT_NEAR(sum(i, j), expected(i, j), 1e-4) << size << " " << i << " " << j;
        }
      }
    }
  }
}

// Forward with U^T, backward with U: together the inverse of U^T U.
TEST(JointKernelsTest, PanelSolvesInvertTheirFactor) {
  constexpr int64_t kCount = 7;
  constexpr int64_t kSize = 60;
  constexpr int64_t kStride = kSize + kKernelSlack;
  Random random(1);
  Matrix<double> u(kCount, kCount);  // its diagonal inverted
  for (int64_t i = 0; i < kCount; ++i) {
    for (int64_t j = i; j < kCount; ++j) u(i, j) = i == j ? 0.5 : random.Normal();
  }
  const auto entry = [&](int64_t i, int64_t j) {
    return i == j ? 1 / u(i, i) : i < j ? u(i, j) : 0;
  };
  Matrix<double> rows(kCount, kStride);
  for (double& value : rows.span()) value = random.Normal();
  Matrix<double> solved(kCount, kStride);
  std::copy_n(rows.data(), rows.size(), solved.data());
  PanelSolve<double> solve = {.count = kCount,
                              .first = 3,
                              .size = kSize,
                              .stride = kStride,
                              .factor = u.data(),
                              .rows = solved.data()};
  KernelsOfJointSearch<double>().solve_panel(solve);
  solve.backward = true;
  KernelsOfJointSearch<double>().solve_panel(solve);
  for (int64_t j = 3; j < kSize; ++j) {
    for (int64_t i = 0; i < kCount; ++i) {
      double again = 0;
      for (int64_t k = 0; k < kCount; ++k) {
        for (int64_t l = 0; l < kCount; ++l) again += entry(k, i) * entry(k, l) * solved(l, j);
      }
      EXPECT_NEAR(again, rows(i, j), 1e-9) << i << " " << j;
    }
  }
}

// A kept column that is the sum of two others gets next to no weight, and the row loses what it
// would without it.
TEST(TableauTest, AColumnThatDependsOnOthersChangesNothing) {
  Row row(9);
  for (int64_t i = 0; i < kCols; ++i) row.h(12, i) = row.h(10, i) + row.h(11, i);
  for (int64_t i = 0; i < kCols; ++i) row.h(i, 12) = row.h(i, 10) + row.h(i, 11);
  row.products[12] = row.products[10] + row.products[11];
  RowTableau with(row.h, kCols);
  with.Build(row.products.data(), row.energy, {}, Range(10, 13), Range(13, 40));
  RowTableau without(row.h, kCols);
  without.Build(row.products.data(), row.energy, {}, Range(10, 12), Range(13, 40));
  EXPECT_NEAR(with.loss(), without.loss(), 1e-8 * row.energy);
  std::vector<double> weights(static_cast<size_t>(kCols));
  with.Weights(weights.data());
  EXPECT_NEAR(weights[12], 0, 1e-8);
}

}  // namespace
}  // namespace sparsefw::cpu
