// The arithmetic that the CUDA kernels share with the host: keys, digits and
// thresholds of the selection, the state of a step, conversions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "core/src/cuda/iteration/step_state.h"
#include "core/src/cuda/iteration/update_form.h"
#include "core/src/cuda/linalg/half_split.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/select/score_window.h"
#include "core/src/cuda/select/selection_keys.h"
#include "gtest/gtest.h"
#include "sparsefw/dtype.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::sparsefw::testing::Random;

// The work of the kernels, digit by digit, on a plain vector.
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

TEST(WindowPassTest, IsRightWhenTheThresholdLiesInside) {
  const auto begun = [](double threshold, unsigned long long above, unsigned long long inside,
                        int64_t wanted) {
    WindowPass pass;
    pass.window.threshold = threshold;
    pass.above = above;
    pass.inside = inside;
    Selection selection;
    BeginInWindow(selection, pass, wanted);
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

TEST(WindowPassTest, GoesWhereTheSelectionFoundTheThreshold) {
  WindowPass pass;
  Selection selection = {};
  EXPECT_EQ(BoundsOf<float>(pass.window).low, std::numeric_limits<float>::max());
  EXPECT_EQ(BoundsOf<float>(pass.window).high, std::numeric_limits<float>::max());
  pass.above = 7;
  selection.threshold.key = ~uint64_t{0};
  MoveWindow(pass, selection, 0);
  EXPECT_FALSE(pass.window.known()) << "nothing was selected: nothing is known";
  EXPECT_EQ(pass.above, 0U);
  selection.threshold.key = ScoreKey(2.0);
  MoveWindow(pass, selection, ScoreOfKey<double>(selection.threshold.key));
  EXPECT_EQ(pass.window.threshold, 2);
  EXPECT_EQ(BoundsOf<float>(pass.window).low, 1);
  EXPECT_EQ(BoundsOf<float>(pass.window).high, 3);
  selection.within = 1;
  selection.threshold.key = ~uint64_t{0};
  MoveWindow(pass, selection, 0);
  EXPECT_EQ(pass.window.threshold, 3) << "nothing inside was selected";
  selection.threshold.key = 1;
  const double low = pass.window.low();
  MoveWindow(pass, selection, 0);
  EXPECT_EQ(pass.window.threshold, low) << "all inside was";
  selection.within = 0;
  MoveWindow(pass, selection, 0);
  EXPECT_EQ(pass.window.threshold, 0) << "every positive score was";
}

TEST(SelectionTest, AKeyStandsForItsScore) {
  for (const double score : {1e-30, 0.25, 3.0, 1e30}) {
    EXPECT_EQ(ScoreOfKey<double>(ScoreKey(score)), score);
    EXPECT_EQ(ScoreOfKey<float>(ScoreKey(static_cast<float>(score))), static_cast<float>(score));
  }
}

TEST(HalfTest, EveryFloat16IsItselfAndOthersAreTheNearest) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if ((half & 0x7C00U) == 0x7C00U) continue;  // infinite, or no number
    EXPECT_EQ(HalfOfFloat(FloatOfHalf(half)), half);
  }
  Random random(3);
  for (int i = 0; i < 100000; ++i) {
    const double exponent = 48 * random.Uniform() - 32;
    const auto value = static_cast<float>((random.Uniform() - 0.5) * std::exp2(exponent));
    const Half nearest = ToHalf(value);
    EXPECT_EQ(FloatOfHalf(HalfOfFloat(value)), ToFloat(nearest)) << value;
  }
  EXPECT_EQ(FloatOfHalf(HalfOfFloat(1.0F + 0x1.0p-11F)), 1.0F) << "a tie goes to the even one";
  EXPECT_EQ(FloatOfHalf(HalfOfFloat(0x1.8p-24F)), 0x1.0p-23F) << "below the normal ones, too";
}

TEST(UpdateFormTest, FollowsTheShareAndTheProducts) {
  EXPECT_EQ(ChooseForm<float>(0.020, 3, {}), UpdateForm::kRows);
  EXPECT_EQ(ChooseForm<float>(0.022, 3, {}), UpdateForm::kDense);
  EXPECT_EQ(ChooseForm<float>(0.014, 2, {}), UpdateForm::kRows);
  EXPECT_EQ(ChooseForm<float>(0.016, 2, {}), UpdateForm::kDense);
  EXPECT_EQ(ChooseForm<float>(0.008, 1, {}), UpdateForm::kRows);
  EXPECT_EQ(ChooseForm<float>(0.01, 1, {}), UpdateForm::kDense);
  EXPECT_EQ(ChooseForm<double>(0.03, 3, {}), UpdateForm::kRows);
  EXPECT_EQ(ChooseForm<double>(0.05, 3, {}), UpdateForm::kDense);
  // A form that was asked for goes before it.
  EXPECT_EQ(ChooseForm<float>(0.9, 3, {.dense_share = 2}), UpdateForm::kRows);
  EXPECT_EQ(ChooseForm<float>(1e-6, 3, {.dense_share = 0}), UpdateForm::kDense);
}

TEST(SelectionTest, KeysOfScoresAreInTheirOrderAnd0WhereNotPositive) {
  ExpectScoresInOrder<float>();
  ExpectScoresInOrder<double>();
}

TEST(SelectionTest, KeysOfRoundingCompareTheEntryFirst) {
  EXPECT_LT(RoundingKey(0.25, 9.0F), RoundingKey(0.5, -1.0F));
  EXPECT_LT(RoundingKey(0.5, -2.0F), RoundingKey(0.5, -1.0F));
  EXPECT_LT(RoundingKey(0.5, -1.0F), RoundingKey(0.5, 1.0F));
  // Equal but for rounding: the saliency decides.
  EXPECT_LT(RoundingKey(0.5 + 1e-9, 1.0F), RoundingKey(0.5, 2.0F));
  EXPECT_NE(RoundingKey(0, 0), 0U);
  EXPECT_EQ(RoundingKey(0.5, -0.0F), RoundingKey(0.5, 0.0F));
  EXPECT_EQ(RoundingKey(1, std::numeric_limits<float>::max()) >> kRoundingKeyBits, 0U);
}

TEST(StepStateTest, StopsAtTheGap) {
  StepState state;
  state.recurrence.relaxed_loss = 10;
  state.rel_gap = 0.5;
  Evaluate(state, 6);  // gap 8
  EXPECT_EQ(state.stopped, 0);
  Evaluate(state, 8);  // gap 4
  EXPECT_EQ(state.stopped, 1);
}

TEST(StepStateTest, RewritesTheEntriesOfTheScaleTheyBelongTo) {
  StepState state;
  const double x = 0.75;
  const double eta = 1 - 0x1.0p-40;
  AdvanceMask(state, eta);
  ASSERT_EQ(state.rewrite, Rewrite::kNone);
  EXPECT_EQ(RewrittenEntry(state, x, true), x);
  const double mask = LazyValue(x, false, state.scale);
  AdvanceMask(state, eta);
  ASSERT_EQ(state.rewrite, Rewrite::kFold);
  EXPECT_EQ(RewrittenEntry(state, x, false), mask * 0x1.0p-40);
  AdvanceMask(state, 1);
  ASSERT_EQ(state.rewrite, Rewrite::kForget);
  EXPECT_EQ(RewrittenEntry(state, x, true), 0);
}

TEST(RawMatrixTest, EveryHalfAndBFloat16IsExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const float expected = dtype == DType::kF16 ? ToFloat(Half{half}) : ToFloat(BFloat16{half});
      // Long: the compiler looks at reads of wider types, too, that do not happen.
      uint16_t row[64] = {};
      row[4] = half;
      const double actual = RawMatrix{row, dtype, 1, 64}.At(4);
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
