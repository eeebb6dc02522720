// The parts of the CPU engine against the obvious way to compute the same.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/linalg/kernels.h"
#include "core/src/select/bit_rows.h"
#include "core/src/select/group_select.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Random;

template <typename Real>
class KernelTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWords = 3;
  static constexpr int64_t kCols = kWords * 64;
  static constexpr double kEpsilon = sizeof(Real) == 4 ? 1e-6 : 1e-14;

  Matrix<Real> RandomRow() {
    Matrix<Real> row(1, kCols);
    for (Real& value : row.span()) value = static_cast<Real>(random_.Normal());
    return row;
  }
  BitRows RandomBits(double share) {
    BitRows bits(1, kCols);
    for (int64_t col = 0; col < kCols; ++col) {
      if (random_.Uniform() < share) bits.Set(0, col);
    }
    return bits;
  }

  Random random_{17};
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(KernelTest, Reals);

TYPED_TEST(KernelTest, UpdateAndScan) {
  const auto weights = this->RandomRow();
  const auto vertex_product = this->RandomRow();
  const auto fixed = this->RandomBits(0.3);
  auto product = this->RandomRow();
  const Matrix<double> before = ::sparsefw::testing::ToDouble(product.view());
  BitRows above(1, this->kCols);
  BitRows window(1, this->kCols);
  const RowOperands<TypeParam> row = {this->kWords, weights.data(), vertex_product.data(),
                                      fixed.row(0), product.data()};
  const TypeParam low = static_cast<TypeParam>(0.2);
  const TypeParam high = static_cast<TypeParam>(0.7);
  const double inner = Kernels<TypeParam>().update_and_scan(row, static_cast<TypeParam>(0.25), low,
                                                            high, above.row(0), window.row(0));
  double expected_inner = 0;
  int64_t inside = 0;
  for (int64_t col = 0; col < this->kCols; ++col) {
    const double u = static_cast<double>(vertex_product(0, col));
    EXPECT_NEAR(static_cast<double>(product(0, col)), before(0, col) + 0.25 * (u - before(0, col)),
                4 * this->kEpsilon);
    const TypeParam score = weights(0, col) * product(0, col);
    const bool free = !fixed.Get(0, col);
    EXPECT_EQ(above.Get(0, col), free && score > high) << col;
    EXPECT_EQ(window.Get(0, col), free && score > low && score <= high) << col;
    inside += window.Get(0, col) ? 1 : 0;
    if (free && score <= high) {
      expected_inner += static_cast<double>(weights(0, col)) * static_cast<double>(product(0, col));
    }
  }
  EXPECT_GT(inside, 0);
  EXPECT_NEAR(inner, expected_inner, 1e-12);
}

TYPED_TEST(KernelTest, UpdateAndScore) {
  const auto weights = this->RandomRow();
  const auto vertex_product = this->RandomRow();
  const BitRows fixed(1, this->kCols);
  auto product = this->RandomRow();
  auto same = this->RandomRow();
  std::copy_n(product.data(), this->kCols, same.data());
  Matrix<TypeParam> scores(1, this->kCols);
  const auto half = static_cast<TypeParam>(0.5);
  Kernels<TypeParam>().update_and_score(
      RowOperands<TypeParam>{this->kWords, weights.data(), vertex_product.data(), fixed.row(0),
                             product.data()},
      half, scores.data());
  for (int64_t col = 0; col < this->kCols; ++col) {
    EXPECT_NEAR(static_cast<double>(product(0, col)),
                static_cast<double>(same(0, col) + vertex_product(0, col)) / 2, 4 * this->kEpsilon);
    EXPECT_EQ(scores(0, col), weights(0, col) * product(0, col));
  }
}

// Against the scalar selection, which has its own test below.
TYPED_TEST(KernelTest, UpdateAndSelect) {
  int64_t selected_at_all = 0;
  for (const int64_t group : {1, 2, 3, 4, 8, 16, 32}) {
    for (const int64_t capacity : {int64_t{0}, group / 2, group}) {
      auto weights = this->RandomRow();
      const auto vertex_product = this->RandomRow();
      const auto fixed = capacity > 0 ? this->RandomBits(1.0 / (2.0 * static_cast<double>(group)))
                                      : BitRows(1, this->kCols);
      auto product = this->RandomRow();
      for (int64_t col = 0; col < this->kCols; col += 5) weights(0, col) = 0;
      const auto half = static_cast<TypeParam>(0.5);
      Matrix<TypeParam> same(1, this->kCols);
      std::copy_n(product.data(), this->kCols, same.data());
      Matrix<TypeParam> scores(1, this->kCols);
      Kernels<TypeParam>().update_and_score(
          RowOperands<TypeParam>{this->kWords, weights.data(), vertex_product.data(), fixed.row(0),
                                 same.data()},
          half, scores.data());
      BitRows vertex(1, this->kCols);
      const std::optional<double> inner = Kernels<TypeParam>().update_and_select(
          RowOperands<TypeParam>{this->kWords, weights.data(), vertex_product.data(), fixed.row(0),
                                 product.data()},
          half, group, static_cast<TypeParam>(capacity), vertex.row(0));
      if (!inner.has_value()) continue;
      ++selected_at_all;
      BitRows expected(1, this->kCols);
      SelectInGroups({this->kCols, group, capacity, fixed.row(0)}, scores.data(), expected.row(0));
      double expected_inner = 0;
      for (int64_t col = 0; col < this->kCols; ++col) {
        EXPECT_EQ(product(0, col), same(0, col));
        EXPECT_EQ(vertex.Get(0, col), expected.Get(0, col)) << group << ", column " << col;
        if (fixed.Get(0, col) || expected.Get(0, col)) continue;
        expected_inner +=
            static_cast<double>(weights(0, col)) * static_cast<double>(product(0, col));
      }
      EXPECT_NEAR(*inner, expected_inner, 1e-12);
    }
  }
  EXPECT_GE(selected_at_all, 3) << "no group is selected by vectors";
}

// Ties: of equal scores the higher column.
TYPED_TEST(KernelTest, UpdateAndSelectTakesTheHigherColumnOfTies) {
  auto ones = this->RandomRow();
  for (TypeParam& value : ones.span()) value = 1;
  auto product = this->RandomRow();
  std::copy_n(ones.data(), this->kCols, product.data());
  BitRows fixed(1, this->kCols);
  fixed.Set(0, 3);
  BitRows vertex(1, this->kCols);
  const auto inner = Kernels<TypeParam>().update_and_select(
      RowOperands<TypeParam>{this->kWords, ones.data(), ones.data(), fixed.row(0), product.data()},
      0, 2, 1, vertex.row(0));
  if (!inner.has_value()) GTEST_SKIP() << "vectors of one lane";
  for (int64_t col = 0; col < this->kCols; ++col) {
    EXPECT_EQ(vertex.Get(0, col), col % 2 == 1 && col != 3) << col;
  }
  EXPECT_EQ(*inner, static_cast<double>(this->kCols / 2));
}

TYPED_TEST(KernelTest, MaskedDotAndZeroMasked) {
  const auto a = this->RandomRow();
  const auto b = this->RandomRow();
  const auto skip = this->RandomBits(0.5);
  const auto skip_too = this->RandomBits(0.2);
  Matrix<TypeParam> zeroed(1, this->kCols);
  Kernels<TypeParam>().zero_masked(this->kWords, a.data(), skip.row(0), zeroed.data());
  double expected = 0;
  for (int64_t col = 0; col < this->kCols; ++col) {
    EXPECT_EQ(zeroed(0, col), skip.Get(0, col) ? 0 : a(0, col));
    if (skip.Get(0, col) || skip_too.Get(0, col)) continue;
    expected += static_cast<double>(a(0, col)) * static_cast<double>(b(0, col));
  }
  EXPECT_NEAR(Kernels<TypeParam>().masked_dot(this->kWords, a.data(), b.data(), skip.row(0),
                                              skip_too.row(0)),
              expected, 1e-12);
}

template <typename Real>
class RelaxedMaskTest : public ::testing::Test {};
TYPED_TEST_SUITE(RelaxedMaskTest, Reals);

// The recurrence itself, entry by entry, with steps of 1, of nearly 1 (the
// product of all factors underflows) and of 0 among them.
TYPED_TEST(RelaxedMaskTest, IsTheEagerRecurrence) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 70;
  Random random(2);
  BitRows vertex(kRows, kCols);
  Matrix<double> eager(kRows, kCols);
  for (int64_t i = 0; i < kRows * kCols; i += 3) {
    vertex.Set(i / kCols, i % kCols);
    eager.data()[i] = 1;
  }
  RelaxedMask<TypeParam> relaxed(vertex, kRows, kCols);
  for (int t = 0; t < 120; ++t) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        if (random.Uniform() < 0.9) continue;
        vertex.row(row)[col >> 6] ^= uint64_t{1} << (col & 63);
        relaxed.Toggle(row, col, vertex.Get(row, col));
      }
    }
    double eta = 2.0 / (t + 2);
    if (t > 40) eta = 0.96;
    if (t > 90) eta = t % 7 == 0 ? 1 : 0;
    for (int64_t row = 0; row < kRows; ++row) {
      relaxed.Advance(eta, row, vertex.row(row));
      if (t == 20 && row != 1) relaxed.Fold(row, vertex.row(row));
    }
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        const bool bit = vertex.Get(row, col);
        double& value = eager(row, col);
        value = (1 - eta) * value + (bit ? eta : 0);
        ASSERT_NEAR(static_cast<double>(relaxed.Value(row, col, bit)), value, 1e-6)
            << "iteration " << t << " entry " << row << ", " << col;
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::cpu
