// The CPU engine's products with G against the obvious loops.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/linalg/gram_product.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "core/src/linalg/panels.h"
#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Random;

template <typename Real>
class ProductsTest : public ::testing::Test {
 protected:
  static constexpr double kEpsilon = sizeof(Real) == 4 ? 1e-6 : 1e-14;

  Real Normal() { return static_cast<Real>(random_.Normal()); }
  Panels<Real> RandomPanels(int64_t depth, int64_t cols) {
    Panels<Real> panels(depth, (cols + 63) / 64);
    for (int64_t row = 0; row < depth; ++row) {
      for (int64_t col = 0; col < cols; ++col) panels(row, col) = Normal();
    }
    return panels;
  }

  Random random_{17};
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ProductsTest, Reals);

TYPED_TEST(ProductsTest, PanelsAreContiguousRunsOf64Columns) {
  Panels<TypeParam> panels(3, 2);
  panels(2, 1) = 5;
  panels(1, 64 + 7) = 6;
  EXPECT_EQ(panels.view().count, 2);
  EXPECT_EQ(panels.view().depth, 3);
  EXPECT_EQ(panels.view().panel(0)[2 * 64 + 1], 5);
  EXPECT_EQ(panels.view().panel(1)[1 * 64 + 7], 6);
}

// Rows of no term, of one, of terms in one tile only and in all of them.
TYPED_TEST(ProductsTest, SparseRowsTimesPanels) {
  constexpr int64_t kDepth = 150;
  constexpr int64_t kTileDepth = 64;
  constexpr int64_t kStride = 128;
  constexpr int64_t kRows = 7;
  const Panels<TypeParam> gram = this->RandomPanels(kDepth, kStride);
  const auto view = gram.view();
  SparseRows<TypeParam> a;
  Matrix<double> dense(kRows, kDepth);
  a.Reset(kDepth, kTileDepth);
  for (int64_t row = 0; row < kRows; ++row) {
    a.BeginRow();
    for (int64_t col = 0; col < kDepth; ++col) {
      const bool one = row == 1 && col == 149;
      const bool in_last_tile = row == 2 && col >= 128;
      const bool many = row > 2 && this->random_.Uniform() < 0.3;
      if (!one && !in_last_tile && !many) continue;
      const TypeParam factor = this->Normal();
      a.Add(factor, col);
      dense(row, col) = static_cast<double>(factor);
    }
    a.EndRow();
  }
  ASSERT_EQ(a.rows(), kRows);
  ASSERT_EQ(a.tiles(), 3);
  EXPECT_TRUE(a.row(0).empty());
  EXPECT_TRUE(a.tile(1, 0).empty());
  EXPECT_EQ(a.tile(1, 2).size(), 1U);
  EXPECT_EQ(a.tile(2, 2).size(), 22U);

  Matrix<TypeParam> out(kRows, kStride);
  for (TypeParam& value : out.span()) value = this->Normal();
  const Matrix<double> before = ::sparsefw::testing::ToDouble(out.view());
  for (int64_t tile = 0; tile < a.tiles(); ++tile) {
    KernelsOfPanels<TypeParam>().add_sparse_product({.a = a,
                                                     .tile = tile,
                                                     .gram = view,
                                                     .panels = {0, 2},
                                                     .out = out.data(),
                                                     .out_stride = kStride});
  }
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kStride; ++col) {
      double expected = before(row, col);
      for (int64_t k = 0; k < kDepth; ++k) {
        expected += dense(row, k) * static_cast<double>(view.panel(col / 64)[k * 64 + col % 64]);
      }
      EXPECT_NEAR(static_cast<double>(out(row, col)), expected, 100 * this->kEpsilon)
          << row << ", " << col;
    }
  }
}

// Tiles and panels cut the work, never the sums.
TYPED_TEST(ProductsTest, SparseProductHasTheSameBitsHoweverItIsCut) {
  constexpr int64_t kDepth = 200;
  const Panels<TypeParam> gram = this->RandomPanels(kDepth, 128);
  std::vector<TypeParam> factors;
  for (int64_t k = 0; k < kDepth; ++k) factors.push_back(this->Normal());
  Matrix<TypeParam> whole(1, 128);
  Matrix<TypeParam> parts(1, 128);
  for (Matrix<TypeParam>* out : {&whole, &parts}) {
    SparseRows<TypeParam> a;
    a.Reset(kDepth, out == &whole ? kDepth : 7);
    a.BeginRow();
    for (int64_t k = 0; k < kDepth; k += 3) a.Add(factors[static_cast<size_t>(k)], k);
    a.EndRow();
    for (int64_t tile = 0; tile < a.tiles(); ++tile) {
      for (int64_t panel = 0; panel < 2; ++panel) {
        KernelsOfPanels<TypeParam>().add_sparse_product({.a = a,
                                                         .tile = tile,
                                                         .gram = gram.view(),
                                                         .panels = {panel, panel + 1},
                                                         .out = out->data(),
                                                         .out_stride = 128});
      }
    }
  }
  EXPECT_TRUE(std::equal(whole.data(), whole.data() + whole.size(), parts.data()));
}

// Depths around the blocks of a sum, rows around the blocks of a register tile.
TYPED_TEST(ProductsTest, DenseRowsTimesGram) {
  const ParallelContext context(2, nullptr);
  for (const int64_t cols : {1, 70, 256, 300}) {
    for (const int64_t rows : {1, 5, 6, 13, 100}) {
      PanelLayer<TypeParam> layer;
      layer.rows = rows;
      layer.cols = cols;
      layer.words = (cols + 63) / 64;
      layer.gram = this->RandomPanels(cols, cols);
      Matrix<TypeParam> input(rows, layer.stride());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) input(row, col) = this->Normal();
      }
      Matrix<TypeParam> product(rows, layer.stride());
      const auto fill = [&](int64_t row, TypeParam* out) {
        std::copy_n(input.row(row), layer.stride(), out);
      };
      const auto visit = [&](int64_t row, const TypeParam* d, const TypeParam* p) {
        EXPECT_TRUE(std::equal(d, d + layer.stride(), input.row(row)));
        std::copy_n(p, layer.stride(), product.row(row));
      };
      SPARSEFW_ASSERT_OK(MultiplyByGram<TypeParam>(layer, context, fill, visit));
      const auto view = layer.gram.view();
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < layer.stride(); ++col) {
          double expected = 0;
          for (int64_t k = 0; k < cols; ++k) {
            expected += static_cast<double>(input(row, k)) *
                        static_cast<double>(view.panel(col / 64)[k * 64 + col % 64]);
          }
          ASSERT_NEAR(static_cast<double>(product(row, col)), expected, 100 * this->kEpsilon)
              << rows << " x " << cols << ": " << row << ", " << col;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::cpu
