// The arithmetic that the CUDA kernels share with the host: keys, digits and
// thresholds of the selection, the lazy mask, step sizes, conversions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "core/src/cuda/iteration/iteration_state.h"
#include "core/src/cuda/iteration/update_form.h"
#include "core/src/cuda/linalg/raw_value.h"
#include "core/src/cuda/select/score_window.h"
#include "core/src/cuda/select/selection_keys.h"
#include "gtest/gtest.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::sparsefw::testing::Random;

// What the kernels do, digit by digit, on a plain vector.
Threshold SelectByDigits(const std::vector<uint64_t>& keys, int key_bits, int64_t wanted,
                         int digit_width) {
  const int index_bits = IndexBits(std::ssize(keys));
  const int key_digits = DigitsOf(key_bits, digit_width);
  Selection selection;
  BeginSelection(selection, wanted,
                 std::count_if(keys.begin(), keys.end(), [](uint64_t key) { return key != 0; }));
  for (int digit = 0; digit < key_digits + DigitsOf(index_bits, digit_width); ++digit) {
    if (selection.done != 0) break;
    const bool index_digit = digit >= key_digits;
    const DigitPlace place = index_digit ? PlaceOf(digit - key_digits, index_bits, digit_width)
                                         : PlaceOf(digit, key_bits, digit_width);
    std::vector<int64_t> counts(size_t{1} << digit_width);
    for (uint64_t index = 0; index < keys.size(); ++index) {
      const uint64_t key = keys[index];
      if (index_digit ? IndexAgrees(selection, key, index, place)
                      : KeyAgrees(selection, key, place)) {
        ++counts[DigitAt(index_digit ? index : key, place)];
      }
    }
    int64_t above = 0;
    for (size_t bin = counts.size(); bin-- > 0; above += counts[bin]) {
      if (above < selection.needed && selection.needed <= above + counts[bin]) {
        EnterBin(selection, index_digit, static_cast<uint32_t>(bin), place, above, counts[bin]);
        break;
      }
    }
  }
  EXPECT_NE(selection.done, 0);
  return selection.threshold;
}

std::set<uint64_t> Selected(const std::vector<uint64_t>& keys, const Threshold& threshold) {
  std::set<uint64_t> selected;
  for (uint64_t index = 0; index < keys.size(); ++index) {
    if (threshold.Selects(keys[index], index)) selected.insert(index);
  }
  return selected;
}

std::set<uint64_t> LargestBySorting(const std::vector<uint64_t>& keys, int64_t wanted) {
  std::vector<std::pair<uint64_t, uint64_t>> order;
  for (uint64_t index = 0; index < keys.size(); ++index) {
    if (keys[index] != 0) order.emplace_back(keys[index], index);
  }
  std::sort(order.rbegin(), order.rend());
  std::set<uint64_t> selected;
  for (int64_t i = 0; i < std::min(wanted, std::ssize(order)); ++i) {
    selected.insert(order[static_cast<size_t>(i)].second);
  }
  return selected;
}

TEST(SelectionTest, DigitsFindWhatSortingFinds) {
  Random random(3);
  for (const int bits : {1, 8, 11, 31, 53, 63}) {
    for (const uint64_t distinct : {uint64_t{2}, uint64_t{7}, uint64_t{1} << 40}) {
      std::vector<uint64_t> keys(777);
      for (uint64_t& key : keys) {
        const auto value = static_cast<uint64_t>(random.Uniform() * static_cast<double>(distinct));
        // Differences in high and in low bits.
        key = (value * 0x9E3779B97F4A7C15U) >> (64 - bits);
      }
      for (const int width : {8, 11}) {
        for (const int64_t wanted : {-1, 0, 1, 2, 300, 776, 777, 5000}) {
          SCOPED_TRACE(::testing::Message() << bits << " bits, " << distinct << " values, width "
                                            << width << ", wanted " << wanted);
          const Threshold threshold = SelectByDigits(keys, bits, wanted, width);
          EXPECT_EQ(Selected(keys, threshold),
                    LargestBySorting(keys, std::max<int64_t>(0, wanted)));
        }
      }
    }
  }
}

TEST(SelectionTest, OfEqualKeysTheHighestIndicesAreTaken) {
  const std::vector<uint64_t> keys(100, 5);
  EXPECT_EQ(Selected(keys, SelectByDigits(keys, 31, 3, 8)), (std::set<uint64_t>{97, 98, 99}));
}

TEST(SelectionTest, PlacesCoverEveryBitOnce) {
  for (int bits = 1; bits <= 63; ++bits) {
    for (const int width : {8, 11}) {
      uint64_t covered = 0;
      for (int digit = 0; digit < DigitsOf(bits, width); ++digit) {
        const DigitPlace place = PlaceOf(digit, bits, width);
        ASSERT_GT(place.width, 0);
        const uint64_t mask = ((uint64_t{1} << place.width) - 1) << place.shift;
        EXPECT_EQ(covered & mask, 0U);
        covered |= mask;
      }
      EXPECT_EQ(covered, (uint64_t{1} << bits) - 1);
    }
  }
}

TEST(SelectionTest, IndexBitsHoldEveryIndex) {
  EXPECT_EQ(IndexBits(1), 1);
  EXPECT_EQ(IndexBits(2), 1);
  EXPECT_EQ(IndexBits(3), 2);
  EXPECT_EQ(IndexBits(4096), 12);
  EXPECT_EQ(IndexBits(4097), 13);
  EXPECT_EQ(IndexBits(int64_t{1} << 40), 40);
}

template <typename Real>
void ExpectScoresInOrder() {
  const Real infinity = std::numeric_limits<Real>::infinity();
  const std::vector<Real> ascending = {std::numeric_limits<Real>::denorm_min(),
                                       std::numeric_limits<Real>::min(),
                                       static_cast<Real>(1e-10),
                                       1,
                                       std::nextafter(Real{1}, infinity),
                                       3,
                                       std::numeric_limits<Real>::max(),
                                       infinity};
  for (size_t i = 0; i < ascending.size(); ++i) {
    EXPECT_LT(i == 0 ? 0 : ScoreKey(ascending[i - 1]), ScoreKey(ascending[i]));
    EXPECT_EQ(ScoreKey(-ascending[i]), 0U);
    EXPECT_LT(ScoreKey(ascending[i]) >> kScoreKeyBits<Real>, 1U);
  }
  EXPECT_EQ(ScoreKey(Real{0}), 0U);
  EXPECT_EQ(ScoreKey(std::numeric_limits<Real>::quiet_NaN()), 0U);
}

TEST(ScoreWindowTest, IsRightWhenTheThresholdLiesInside) {
  const auto begun = [](double threshold, unsigned long long above, unsigned long long inside,
                        int64_t wanted) {
    ScoreWindow window;
    window.threshold = threshold;
    window.above = above;
    window.inside = inside;
    Selection selection;
    BeginInWindow(selection, window, wanted);
    return selection;
  };
  EXPECT_EQ(begun(-1, 0, 100, 50).within, 0) << "nothing to rest on";
  EXPECT_EQ(begun(2, 51, 100, 50).within, 0) << "too many above";
  EXPECT_EQ(begun(2, 30, 19, 50).within, 0) << "too few inside";
  const Selection some = begun(2, 30, 40, 50);
  EXPECT_EQ(some.within, 1);
  EXPECT_EQ(some.needed, 20);
  EXPECT_EQ(some.done, 0);
  const Selection all = begun(2, 30, 20, 50);
  EXPECT_EQ(all.within, 1);
  EXPECT_TRUE(all.done != 0 && all.threshold.Selects(1, 0));
  const Selection none = begun(2, 50, 20, 50);
  EXPECT_EQ(none.within, 1);
  EXPECT_FALSE(none.threshold.Selects(~uint64_t{0} - 1, 7));
  // Above a window at 0 is all that there is.
  EXPECT_EQ(begun(0, 30, 0, 50).within, 1);
  EXPECT_EQ(begun(0, 51, 0, 50).within, 0);
}

TEST(ScoreWindowTest, FollowsTheThresholdAndWidensWhenItMisses) {
  ScoreWindow window;
  Selection selection = {};
  selection.threshold = {ScoreKey(2.0), 0};
  MoveWindow(window, selection, ScoreOfKey<double>(selection.threshold.key));
  EXPECT_EQ(window.threshold, 2);
  EXPECT_EQ(BoundsOf<float>(window).low, 1);
  EXPECT_EQ(BoundsOf<float>(window).high, 3);
  selection.within = 1;
  for (int i = 0; i < 40; ++i) MoveWindow(window, selection, 2);
  EXPECT_EQ(window.spread, 1.0 / 1024) << "a threshold that stays";
  selection.within = 0;
  MoveWindow(window, selection, 2.1);
  EXPECT_NEAR(window.spread, 0.3, 1e-12) << "six times the move that was missed";
  selection.within = 1;
  selection.threshold.key = ~uint64_t{0};
  MoveWindow(window, selection, 0);
  EXPECT_NEAR(window.threshold, 2.1 * 1.3, 1e-12) << "nothing inside was selected";
  selection.threshold.key = 1;
  const double spread = window.spread;
  MoveWindow(window, selection, 0);
  EXPECT_NEAR(window.threshold, 2.73 * (1 - spread), 1e-12) << "all inside was";
  selection.within = 0;
  MoveWindow(window, selection, 0);
  EXPECT_EQ(window.threshold, 0) << "every positive score was";
  EXPECT_EQ(window.above + window.inside, 0U);
}

TEST(ScoreWindowTest, AKeyStandsForItsScore) {
  for (const double score : {1e-30, 0.25, 3.0, 1e30}) {
    EXPECT_EQ(ScoreOfKey<double>(ScoreKey(score)), score);
    EXPECT_EQ(ScoreOfKey<float>(ScoreKey(static_cast<float>(score))), static_cast<float>(score));
  }
}

TEST(UpdateFormTest, FollowsTheShareAndThePrecision) {
  const auto form = [](double share, ProductPrecision precision, bool tiles) {
    return ChooseForm(share, {.tiles = tiles, .precision = precision});
  };
  EXPECT_EQ(form(0.004, ProductPrecision::kFloat32, true), UpdateForm::kRows);
  EXPECT_EQ(form(0.025, ProductPrecision::kFloat32, true), UpdateForm::kTiles);
  EXPECT_EQ(form(0.7, ProductPrecision::kFloat32, true), UpdateForm::kDense);
  EXPECT_EQ(form(0.025, ProductPrecision::kFloat32, false), UpdateForm::kRows);
  EXPECT_EQ(form(0.025, ProductPrecision::kTf32, true), UpdateForm::kTiles);
  EXPECT_EQ(form(0.025, ProductPrecision::kBf16, true), UpdateForm::kDense);
  // What was asked for goes before it.
  EXPECT_EQ(ChooseForm(0.9, {.tiles = true, .dense_share = 2}), UpdateForm::kTiles);
  EXPECT_EQ(ChooseForm(0.9, {.tiles = true, .tiled_share = 2, .dense_share = 2}),
            UpdateForm::kRows);
  EXPECT_EQ(ChooseForm(1e-6, {.tiles = true, .dense_share = 0}), UpdateForm::kDense);
}

TEST(SelectionTest, KeysOfScoresAreInTheirOrderAnd0WhereNotPositive) {
  ExpectScoresInOrder<float>();
  ExpectScoresInOrder<double>();
}

TEST(SelectionTest, KeysOfRoundingCompareTheEntryFirst) {
  EXPECT_LT(RoundKey(0.25, 9.0F), RoundKey(0.5, -1.0F));
  EXPECT_LT(RoundKey(0.5, -2.0F), RoundKey(0.5, -1.0F));
  EXPECT_LT(RoundKey(0.5, -1.0F), RoundKey(0.5, 1.0F));
  // Equal but for rounding: the saliency decides.
  EXPECT_LT(RoundKey(0.5 + 1e-9, 1.0F), RoundKey(0.5, 2.0F));
  EXPECT_NE(RoundKey(0, 0), 0U);
  EXPECT_EQ(RoundKey(1, std::numeric_limits<float>::max()) >> kRoundKeyBits, 0U);
}

TEST(IterationStateTest, TheLazyMaskIsTheMask) {
  Random random(5);
  IterationState state;
  bool in_vertex = random.Uniform() < 0.5;
  double mask = in_vertex ? 1 : 0;
  double x = mask;
  for (int t = 0; t < 3000; ++t) {
    if (random.Uniform() < 0.3) {
      in_vertex = !in_vertex;
      x = ToggledEntry(x, in_vertex, state.vertex_sum);
    }
    // Steps of 1 forget everything, large ones make c small soon.
    const double eta = t % 700 == 20 ? 1 : random.Uniform() * 0.9;
    AdvanceLazyMask(state, eta);
    x = RewrittenEntry(state, x, in_vertex);
    mask += eta * ((in_vertex ? 1.0 : 0.0) - mask);
    ASSERT_NEAR(LazyValue(x, in_vertex, state.decay, state.vertex_sum), mask, 1e-12) << t;
    ASSERT_GE(state.decay, kLeastDecay);
  }
}

TEST(IterationStateTest, OpenLoopStepsAreThoseOfThePaper) {
  IterationState state;
  for (const int64_t t : {0, 1, 2, 500}) {
    state.iteration = t;
    EXPECT_EQ(ChooseStep<double>(state), 2.0 / static_cast<double>(t + 2));
    EXPECT_EQ(ChooseStep<float>(state),
              static_cast<double>(static_cast<float>(2.0 / static_cast<double>(t + 2))));
  }
}

// L along the segment is L - eta g + eta^2 q.
TEST(IterationStateTest, LineSearchTakesTheMinimumOfTheSegment) {
  IterationState state = {.relaxed_loss = 10, .vertex_loss = 9, .vertex_inner = 7};
  state.line_search = 1;
  EvaluateVertex(state, 7);
  EXPECT_EQ(state.gap, 6);
  const double q = 9 - 2 * 7 + 10;
  EXPECT_EQ(ChooseStep<double>(state), 6 / (2 * q));
  state.vertex_loss = 4.5;  // q = 0.5: the minimum is beyond the vertex
  EXPECT_EQ(ChooseStep<double>(state), 1);
  state.vertex_loss = 3;  // q < 0: by rounding, or G is not PSD
  EXPECT_EQ(ChooseStep<double>(state), 1);
  state.gap = 0;
  EXPECT_EQ(ChooseStep<double>(state), 0);
}

TEST(IterationStateTest, TheLossMovesAlongTheSegment) {
  IterationState state = {.relaxed_loss = 10, .vertex_loss = 9, .vertex_inner = 7};
  MoveLoss(state, 0.25);
  EXPECT_DOUBLE_EQ(state.relaxed_loss, 10 - 0.25 * 6 + 0.0625 * 5);
  EXPECT_EQ(state.iteration, 1);
  EXPECT_EQ(state.step_size, 0.25);
}

TEST(IterationStateTest, StopsAtTheGapAndKeepsTheBestBound) {
  IterationState state = {.relaxed_loss = 10};
  state.lower_bound = -std::numeric_limits<double>::infinity();
  state.rel_gap = 0.5;
  EvaluateVertex(state, 6);  // gap 8
  EXPECT_EQ(state.stopped, 0);
  EXPECT_EQ(state.lower_bound, 2);
  EvaluateVertex(state, 5);  // gap 10
  EXPECT_EQ(state.lower_bound, 2);
  EvaluateVertex(state, 8);  // gap 4
  EXPECT_EQ(state.stopped, 1);
  EXPECT_EQ(state.lower_bound, 6);
  EvaluateVertex(state, 10 + 1e-15);
  EXPECT_EQ(state.gap, 0);
}

TEST(RawValueTest, EveryHalfAndBFloat16IsExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const float expected = dtype == DType::kF16 ? ToFloat(Half{half}) : ToFloat(BFloat16{half});
      // Long: the compiler looks at reads of wider types, too, that do not happen.
      uint16_t row[64] = {};
      row[4] = half;
      const double actual = RawValue(row, dtype, 4);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << bits;
      } else {
        EXPECT_EQ(actual, static_cast<double>(expected)) << bits;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << bits;
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::cuda
