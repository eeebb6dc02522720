// One row without its fixed columns against the same row with all of them.
#include "core/src/cpu/iteration/free_columns.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "core/src/cpu/iteration/row_wise.h"
#include "core/src/cpu/iteration/vertex_update.h"
#include "core/src/cpu/select/row_selector.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Random;

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 150;
constexpr int64_t kSteps = 6;

// Row 0 has no fixed column, row 1 has some, row 2 has no free one.
template <typename Real>
Iterate<Real> MakeIterate() {
  Random random(5);
  Iterate<Real> it;
  PanelLayer<Real> layer;
  layer.rows = kRows;
  layer.cols = kCols;
  layer.words = (kCols + 63) / 64;
  Matrix<Real> weights(kRows, layer.stride());
  layer.gram = Panels<Real>(kCols, layer.words);
  it.groups = GroupsOf(Pattern::PerRow(0), kRows, kCols);
  it.groups.capacity = 90;
  it.blocks = {kRows, kRows};
  it.fixed = BitRows(kRows, kCols);
  it.previous = BitRows(kRows, kCols);
  it.vertex = BitRows(kRows, kCols);
  it.product = Matrix<Real>(kRows, layer.stride());
  it.vertex_product = Matrix<Real>(kRows, layer.stride());
  for (int64_t col = 0; col < kCols; ++col) {
    if (random.Uniform() < 0.4) it.fixed.Set(1, col);
    it.fixed.Set(2, col);
    for (int64_t other = col; other < kCols; ++other) {
      layer.gram(col, other) = layer.gram(other, col) = static_cast<Real>(random.Normal());
    }
    for (int64_t row = 0; row < kRows; ++row) {
      weights(row, col) = col % 11 == 0 ? 0 : static_cast<Real>(random.Normal());
      it.product(row, col) = static_cast<Real>(random.Normal());
      it.vertex_product(row, col) = static_cast<Real>(random.Normal());
      if (!it.fixed.Get(row, col) && random.Uniform() < 0.3) it.previous.Set(row, col);
      if (!it.fixed.Get(row, col) && random.Uniform() < 0.3) it.vertex.Set(row, col);
    }
  }
  layer.weights = std::move(weights);
  it.layer = std::make_shared<PanelLayer<Real>>(std::move(layer));
  return it;
}

template <typename Real>
class FreeColumnsTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FreeColumnsTest, Reals);

// With room for all copied rows of G, and with so little that they are
// forgotten within one iteration.
TYPED_TEST(FreeColumnsTest, IsTheRowWithAllItsColumns) {
  for (const int64_t copy_bytes : {FreeColumns<TypeParam>::kCopyBytes, int64_t{4096}}) {
    Iterate<TypeParam> whole = MakeIterate<TypeParam>();
    Iterate<TypeParam> part = MakeIterate<TypeParam>();
    RelaxedMask<TypeParam> whole_mask(whole.previous, kRows, kCols);
    RelaxedMask<TypeParam> part_mask(part.previous, kRows, kCols);
    const auto whole_selector = MakeRowSelector(whole);
    const auto part_selector = MakeRowSelector(part);
    const ParallelContext context(1, nullptr);
    whole.KnowOlder();
    part.KnowOlder();
    VertexUpdate<TypeParam> update(whole, whole_mask, context);
    FreeColumns<TypeParam> columns(part, part_mask, copy_bytes);
    RowScratch<TypeParam> scratch(whole.layer->words);
    SparseRows<TypeParam> delta;
    for (int64_t row = 0; row < kRows; ++row) {
      columns.Load(row);
      for (int64_t i = 0; i < kSteps; ++i) {
        const double step = OpenLoopStep<TypeParam>(1 + i);
        const double change = update.ApplyToRow(row, delta);
        EXPECT_NEAR(columns.ApplyVertex(), change, 1e-9);
        whole_mask.Advance(step, row, whole.previous.row(row));
        const double inner = whole_selector->Select(
            row, whole.Row(row), static_cast<TypeParam>(step), scratch, whole.vertex.row(row));
        EXPECT_NEAR(columns.Advance(step, *part_selector, scratch), inner, 1e-9);
        if (i == kSteps / 2) {  // as between two batches
          columns.Store();
          columns.Load(row);
        }
      }
      columns.Store();
      for (int64_t col = 0; col < kCols; ++col) {
        EXPECT_EQ(part.vertex.Get(row, col), whole.vertex.Get(row, col));
        EXPECT_EQ(part.previous.Get(row, col), whole.previous.Get(row, col));
        EXPECT_EQ(part.older.bits.Get(row, col), whole.older.bits.Get(row, col));
        if (whole.fixed.Get(row, col)) continue;
        EXPECT_EQ(part.product(row, col), whole.product(row, col));
        EXPECT_EQ(part.vertex_product(row, col), whole.vertex_product(row, col));
        const bool bit = whole.previous.Get(row, col);
        EXPECT_EQ(part_mask.Value(row, col, bit), whole_mask.Value(row, col, bit));
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::cpu
