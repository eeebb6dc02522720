// Parts of the joint search of the CPU engine: the tableau, Cholesky factors, transfers.
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/src/cpu/joint/tableau.h"
#include "core/src/cpu/joint/transfers.h"
#include "core/src/linalg/serial_blas.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::MakeRandomLayer;
using ::sparsefw::testing::Random;
using ::sparsefw::testing::RandomLayer;

constexpr int64_t kCols = 90;

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
  Matrix<double> h{kCols, kCols};
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

TEST(TableauTest, RestoreUndoesAll) {
  const Row row(3);
  RowTableau tableau(row.h, kCols);
  RowTableau untouched(row.h, kCols);
  for (RowTableau* one : {&tableau, &untouched}) {
    one->Build(row.products.data(), row.energy, Range(0, 10), Range(10, 40), Range(40, 90));
  }
  tableau.Mark();
  std::vector<double> column(static_cast<size_t>(tableau.stride()));
  for (const int64_t position : {3, 50, 7, 3, 60}) {
    tableau.Fetch(position, column.data());
    tableau.Sweep(position, column.data());
  }
  tableau.Restore();
  ExpectSame(tableau, untouched, 0);
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

TEST(SerialBlasTest, FactorOfAnySize) {
  for (const int64_t size : {1, 5, 32, 33, 90}) {
    const Row row(6);
    Matrix<double> a(size, size);
    std::vector<double> diagonal;
    for (int64_t i = 0; i < size; ++i) {
      std::copy_n(row.h.row(i), size, a.row(i));
      diagonal.push_back(row.h(i, i));
    }
    serial::Factorize(a.data(), size, size, diagonal.data(), 1e-12);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (int64_t k = 0; k <= j; ++k) sum += a(i, k) * a(j, k);
        EXPECT_NEAR(sum, row.h(i, j), 1e-10 * std::sqrt(row.h(i, i) * row.h(j, j)));
      }
    }
  }
}

// The second column is the first, the third is dead.
TEST(SerialBlasTest, DependentColumnsGetNextToNothing) {
  Matrix<double> a(3, 3);
  a(0, 0) = a(1, 0) = a(1, 1) = 4;
  const std::vector<double> diagonal = {4, 4, 0};
  serial::Factorize(a.data(), 3, 3, diagonal.data(), 1e-12);
  EXPECT_EQ(a(0, 0), 2);
  EXPECT_EQ(a(1, 1), 2);
  EXPECT_EQ(a(2, 2), 1);
}

TEST(TransfersTest, PairsTheCheapestWithTheMostUsefulOfAnotherRow) {
  const std::vector<JointOffer> offers = {
      {{{1, 1}, {2, 4}}, {{3, 10}, {4, 9}}, 0},  // takes: its own removal is dearer than row 1's
      {{{1, 0.5}, {2, 2}, {3, 8}}, {{5, 1}}, 0},
      {{{1, 7}}, {{6, 3}}, 0},
  };
  const Transfers transfers = ChooseTransfers(offers);
  // Row 1 gives for 0.5 to row 0 (10), for 2 to row 0 (9); its next costs 8, row 2 gains 3.
  EXPECT_EQ(transfers.given, (std::vector<int32_t>{0, 2, 0}));
  EXPECT_EQ(transfers.taken, (std::vector<int32_t>{2, 0, 0}));
  EXPECT_EQ(transfers.count, 2);
}

TEST(TransfersTest, NothingBelowTheTolerancesOrInOneRow) {
  EXPECT_EQ(ChooseTransfers(std::vector<JointOffer>{{{{1, 1}}, {{2, 9}}, 0}}).count, 0);
  EXPECT_EQ(
      ChooseTransfers(std::vector<JointOffer>{{{{1, 1}}, {}, 0.6}, {{}, {{2, 2}}, 0.6}}).count, 0);
  EXPECT_EQ(
      ChooseTransfers(std::vector<JointOffer>{{{{1, 1}}, {}, 0.4}, {{}, {{2, 2}}, 0.4}}).count, 1);
}

}  // namespace
}  // namespace sparsefw::cpu
