// U and b from the nearer of the last two vertices, beside those from scratch.
#include "core/src/cpu/iteration/vertex_update.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cpu {
namespace {

using ::sparsefw::testing::Random;

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 150;

// Vertices of a zigzag: every other one is nearly the same.
class Zigzag {
 public:
  Zigzag() {
    PanelLayer<double> layer;
    layer.rows = kRows;
    layer.cols = kCols;
    layer.words = (kCols + 63) / 64;
    Matrix<double> weights(kRows, layer.stride());
    layer.gram = Panels<double>(kCols, layer.words);
    it.blocks = {kRows, 2};
    it.fixed = BitRows(kRows, kCols);
    it.previous = BitRows(kRows, kCols);
    it.vertex = BitRows(kRows, kCols);
    it.vertex_product = Matrix<double>(kRows, layer.stride());
    for (int64_t col = 0; col < kCols; ++col) {
      for (int64_t other = col; other < kCols; ++other) {
        layer.gram(col, other) = layer.gram(other, col) = random_.Normal();
      }
      for (int64_t row = 0; row < kRows; ++row) {
        weights(row, col) = col % 11 == 0 ? 0 : random_.Normal();
        if (row == 1 && random_.Uniform() < 0.3) it.fixed.Set(row, col);
      }
    }
    layer.weights = std::move(weights);
    it.layer = std::make_shared<PanelLayer<double>>(std::move(layer));
    for (BitRows* side : {&sides_[0], &sides_[1]}) {
      *side = BitRows(kRows, kCols);
      Flip(*side, 0.5);
    }
    for (int64_t row = 0; row < kRows; ++row) FillProduct(it.previous, row);
  }

  // `calm`: V_t is near to V_{t-1} instead.
  void Next(bool calm) {
    BitRows& side = sides_[turn_ & 1];
    Flip(side, 0.04);
    if (!calm) ++turn_;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t word = 0; word < it.layer->words; ++word) {
        it.vertex.row(row)[word] = side.row(row)[word];
      }
    }
  }

  double Product(const BitRows& vertex, int64_t row, int64_t col) const {
    double sum = 0;
    for (int64_t k = 0; k < kCols; ++k) {
      if (vertex.Get(row, k) || it.fixed.Get(row, k)) continue;
      sum += it.layer->weights(row, k) *
             it.layer->gram.view().panel(col / kPanelCols)[k * kPanelCols + col % kPanelCols];
    }
    return sum;
  }

  // <D(V), U> of V_{t-1}; U must be right.
  double Loss() const {
    double loss = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        if (it.previous.Get(row, col) || it.fixed.Get(row, col)) continue;
        loss += it.layer->weights(row, col) * it.vertex_product(row, col);
      }
    }
    return loss;
  }

  void ExpectProduct() const {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        EXPECT_EQ(it.previous.Get(row, col), it.vertex.Get(row, col));
        EXPECT_NEAR(it.vertex_product(row, col), Product(it.vertex, row, col), 1e-10);
      }
    }
  }

  void FillProduct(const BitRows& vertex, int64_t row) {
    for (int64_t col = 0; col < kCols; ++col) {
      it.vertex_product(row, col) = Product(vertex, row, col);
    }
  }

  Iterate<double> it;

 private:
  void Flip(BitRows& bits, double share) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        if (!it.fixed.Get(row, col) && random_.Uniform() < share) bits.Flip(row, col);
      }
    }
  }

  Random random_{7};
  BitRows sides_[2];
  size_t turn_ = 0;
};

constexpr bool kCalm[] = {false, false, false, true, true, false, false, true, false, false};

TEST(VertexUpdateTest, TakesTheNearerOfTheLastTwo) {
  Zigzag zigzag;
  RelaxedMask<double> relaxed(zigzag.it.previous, kRows, kCols);
  const ParallelContext context(2, nullptr);
  VertexUpdate<double> update(zigzag.it, relaxed, context);
  double loss = zigzag.Loss();
  int64_t fewer = 0;
  for (const bool calm : kCalm) {
    zigzag.Next(calm);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const VertexDistance distance, update.CountToggles());
    EXPECT_LE(distance.terms, distance.toggled);
    fewer += 4 * distance.terms < distance.toggled ? 1 : 0;
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double change, update.Apply([](int64_t) {}));
    loss += change;
    zigzag.ExpectProduct();
    EXPECT_NEAR(loss, zigzag.Loss(), 1e-9);
  }
  EXPECT_GE(fewer, 3);
}

// A dense product in between leaves U_{t-1} and b_{t-1} to those that follow.
TEST(VertexUpdateTest, GoesOnAfterADenseProduct) {
  Zigzag zigzag;
  RelaxedMask<double> relaxed(zigzag.it.previous, kRows, kCols);
  const ParallelContext context(1, nullptr);
  VertexUpdate<double> update(zigzag.it, relaxed, context);
  zigzag.it.TrackOlder();
  double loss = zigzag.Loss();
  for (size_t i = 0; i < 6; ++i) {
    zigzag.Next(false);
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const VertexDistance distance, update.CountToggles());
    if (i % 2 == 0) {
      SPARSEFW_ASSERT_OK(update.Toggle());
      std::vector<double> losses(kRows);
      for (int64_t row = 0; row < kRows; ++row) {
        zigzag.FillProduct(zigzag.it.vertex, row);
        for (int64_t col = 0; col < kCols; ++col) {
          if (zigzag.it.vertex.Get(row, col) || zigzag.it.fixed.Get(row, col)) continue;
          losses[static_cast<size_t>(row)] +=
              zigzag.it.layer->weights(row, col) * zigzag.it.vertex_product(row, col);
        }
      }
      update.SetLosses(losses);
      loss = zigzag.Loss();
      continue;
    }
    if (i > 1) {
      EXPECT_LT(4 * distance.terms, distance.toggled);
    }
    SPARSEFW_ASSERT_OK_AND_ASSIGN(const double change, update.Apply([](int64_t) {}));
    loss += change;
    zigzag.ExpectProduct();
    EXPECT_NEAR(loss, zigzag.Loss(), 1e-9);
  }
}

}  // namespace
}  // namespace sparsefw::cpu
