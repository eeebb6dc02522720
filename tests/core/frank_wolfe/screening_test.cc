// The bound that screening stands on, and the scalars that follow it, against plain
// float64 arithmetic.
#include "core/src/frank_wolfe/screening.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw {
namespace {

using Row = std::vector<double>;

// A row of weights and a mask that random steps move.
class RowWalk {
 public:
  RowWalk(int64_t cols, double correlation, uint64_t seed)
      : layer_(testing::MakeRandomLayer({.rows = 1,
                                         .cols = cols,
                                         .correlation = correlation,
                                         .dead_columns = 1,
                                         .seed = seed})),
        random_(seed),
        mask_(static_cast<size_t>(cols)),
        vertex_(static_cast<size_t>(cols)) {
    for (double& m : mask_) m = random_.Uniform();
    NewVertex();
  }

  Row Pruned(const Row& mask) const {
    Row result(mask.size());
    for (size_t j = 0; j < mask.size(); ++j) result[j] = weight(j) * (1 - mask[j]);
    return result;
  }
  Row TimesGram(const Row& d) const {
    Row result(d.size());
    for (size_t j = 0; j < d.size(); ++j) {
      for (size_t k = 0; k < d.size(); ++k) result[j] += d[k] * gram(k, j);
    }
    return result;
  }
  double weight(size_t j) const { return static_cast<double>(layer_.weights(0, int64_t(j))); }
  double gram(size_t k, size_t j) const { return layer_.gram(int64_t(k), int64_t(j)); }
  const Row& mask() const { return mask_; }
  const Row& vertex() const { return vertex_; }

  void NewVertex() {
    for (double& v : vertex_) v = random_.Uniform() < 0.3 ? 1 : 0;
  }
  void TakeStep(double eta) {
    for (size_t j = 0; j < mask_.size(); ++j) mask_[j] += eta * (vertex_[j] - mask_[j]);
  }
  double Uniform() { return random_.Uniform(); }

 private:
  const testing::RandomLayer layer_;
  testing::Random random_;
  Row mask_;
  Row vertex_;
};

double Dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

Row Minus(const Row& a, const Row& b) {
  Row result(a.size());
  for (size_t j = 0; j < a.size(); ++j) result[j] = a[j] - b[j];
  return result;
}

class RowMovementTest : public ::testing::TestWithParam<double> {};

TEST_P(RowMovementTest, FollowsTheDistanceAndBoundsTheScores) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RowWalk walk(24, GetParam(), seed);
    const Row start = walk.Pruned(walk.mask());
    const Row start_product = walk.TimesGram(start);
    RowMovement movement;
    movement.start_loss = movement.inner_start = Dot(start, start_product);
    Row pruned_vertex = walk.Pruned(walk.vertex());
    movement.vertex_inner = movement.vertex_start = Dot(pruned_vertex, start_product);
    movement.vertex_loss = Dot(pruned_vertex, walk.TimesGram(pruned_vertex));
    double decay = 1;
    for (int step = 0; step < 30; ++step) {
      const double eta = step == 20 ? 1 : walk.Uniform() * 0.4;
      walk.TakeStep(eta);
      movement.TakeStep(eta);
      decay *= 1 - eta;
      const Row now = walk.Pruned(walk.mask());
      const Row product = walk.TimesGram(now);
      const Row moved = Minus(now, start);
      const double distance = Dot(moved, walk.TimesGram(moved));
      EXPECT_NEAR(movement.moved, distance, 1e-9 * movement.start_loss);
      EXPECT_NEAR(movement.decay, decay, 1e-12);
      EXPECT_NEAR(movement.vertex_inner, Dot(pruned_vertex, product), 1e-9 * movement.start_loss);
      for (size_t j = 0; j < now.size(); ++j) {
        const double change = std::abs(walk.weight(j) * (product[j] - start_product[j]));
        const double bound = std::abs(walk.weight(j)) * std::sqrt(walk.gram(j, j) * distance);
        EXPECT_LE(change, bound * (1 + 1e-9) + 1e-12) << "column " << j;
      }
      if (step % 3 != 0) continue;
      walk.NewVertex();
      const Row next = walk.Pruned(walk.vertex());
      const Row delta = Minus(next, pruned_vertex);
      movement.ToggleVertex(Dot(delta, product), Dot(delta, start_product));
      pruned_vertex = next;
      movement.vertex_loss = Dot(next, walk.TimesGram(next));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Correlations, RowMovementTest, ::testing::Values(0.0, 0.5, 0.95));

TEST(RowMovement, VertexAwayIsTheDistanceOfTheVertex) {
  RowWalk walk(16, 0.9, 3);
  const Row start = walk.Pruned(walk.mask());
  const Row vertex = walk.Pruned(walk.vertex());
  RowMovement movement;
  movement.start_loss = Dot(start, walk.TimesGram(start));
  movement.vertex_loss = Dot(vertex, walk.TimesGram(vertex));
  movement.vertex_start = Dot(vertex, walk.TimesGram(start));
  const Row away = Minus(vertex, start);
  EXPECT_NEAR(movement.VertexAway(), Dot(away, walk.TimesGram(away)), 1e-9 * movement.start_loss);
}

}  // namespace
}  // namespace sparsefw
