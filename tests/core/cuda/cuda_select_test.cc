// The selection of the next vertex, pass by pass: what is selected is what sorting
// selects, whether the guessed window is right or wrong. Steps are powers of two,
// so that a device which fuses products and sums gives the bits of the host.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "gtest/gtest.h"
#include "tests/cuda_on_host/test_buffer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::cuda {
namespace {

using ::cuda_on_host::TestBuffer;
using ::sparsefw::testing::Random;

// An iterate of which only what a selection needs is there.
template <typename Real>
class Selector {
 public:
  Selector(int64_t rows, int64_t cols, const Groups& groups, int64_t free_total)
      : rows_(rows),
        cols_(cols),
        stride_(StrideOf(cols)),
        weights_(Padded()),
        product_(Padded()),
        vertex_product_(Padded()),
        entries_(Padded()),
        fixed_(Words()),
        vertex_(Words()),
        inside_(Words()),
        state_({StepState{}}),
        window_({WindowPass{}}),
        selection_({Selection{}}),
        histogram_(std::vector<unsigned>(kDigitBins + 1)),
        partial_(std::vector<double>(static_cast<size_t>(3 * rows * ColumnChunks(stride_)))) {
    it_ = {.rows = rows,
           .cols = cols,
           .stride = stride_,
           .groups = groups,
           .free_total = free_total,
           .weights = weights_.data(),
           .product = product_.data(),
           .vertex_product = vertex_product_.data(),
           .entries = entries_.data(),
           .fixed = fixed_.data(),
           .previous = fixed_.data(),
           .vertex = vertex_.data(),
           .state = state_.data(),
           .scratch = {selection_.data(), histogram_.data(), histogram_.data() + kDigitBins,
                       window_.data(), inside_.data()},
           .partial = partial_.data()};
  }

  // [rows * cols], as the padded matrices of the device.
  void SetWeights(const std::vector<Real>& values) { weights_.Set(Pad(values)); }
  void SetProduct(const std::vector<Real>& values) { product_.Set(Pad(values)); }
  void SetVertexProduct(const std::vector<Real>& values) { vertex_product_.Set(Pad(values)); }
  void SetFixed(const std::vector<bool>& fixed) {
    std::vector<BitWord> words(static_cast<size_t>(rows_ * stride_ / 32));
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      const int64_t at = i / cols_ * stride_ + i % cols_;
      if (fixed[static_cast<size_t>(i)]) {
        words[static_cast<size_t>(at / 32)] |= BitWord{1} << (at % 32);
      }
    }
    fixed_.Set(words);
  }

  struct Outcome {
    std::vector<bool> vertex;  // [rows * cols]
    std::vector<Real> product;
    double inner = 0;
    bool within = false;  // the window was right
  };
  // The next vertex after a step of size eta.
  Outcome Select(double eta) {
    StepState state;
    state.recurrence.step_size = eta;
    state.recurrence.relaxed_loss = 1;
    state_.Set({state});
    const Motion motion = eta == 0 ? Motion::kStay : Motion::kMove;
    cuda_on_host::MustSucceed(LaunchSelect(it_, motion, nullptr));
    cuda_on_host::MustSucceed(LaunchFinishStep(it_, nullptr));
    Outcome outcome;
    outcome.inner = state_.Get().front().recurrence.vertex_inner;
    outcome.within = selection_.Get().front().within != 0;
    const std::vector<BitWord> words = vertex_.Get();
    const std::vector<Real> product = product_.Get();
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      const bool set = ((words[static_cast<size_t>(i / 32)] >> (i % 32)) & 1U) != 0;
      if (i % stride_ >= cols_) {
        EXPECT_FALSE(set) << "padding " << i;
        continue;
      }
      outcome.vertex.push_back(set);
      outcome.product.push_back(product[static_cast<size_t>(i)]);
    }
    return outcome;
  }

 private:
  std::vector<Real> Padded() const {
    return std::vector<Real>(static_cast<size_t>(rows_ * stride_));
  }
  std::vector<BitWord> Words() const {
    return std::vector<BitWord>(static_cast<size_t>(rows_ * stride_ / 32));
  }
  std::vector<Real> Pad(const std::vector<Real>& values) const {
    std::vector<Real> padded = Padded();
    for (int64_t row = 0; row < rows_; ++row) {
      std::copy_n(values.begin() + row * cols_, cols_, padded.begin() + row * stride_);
    }
    return padded;
  }

  const int64_t rows_;
  const int64_t cols_;
  const int64_t stride_;
  TestBuffer<Real> weights_;
  TestBuffer<Real> product_;
  TestBuffer<Real> vertex_product_;
  TestBuffer<Real> entries_;
  TestBuffer<BitWord> fixed_;
  TestBuffer<BitWord> vertex_;
  TestBuffer<BitWord> inside_;
  TestBuffer<StepState> state_;
  TestBuffer<WindowPass> window_;
  TestBuffer<Selection> selection_;
  TestBuffer<unsigned> histogram_;
  TestBuffer<double> partial_;
  IterateView<Real> it_;
};

// Selects the `count` largest positive scores of entries [first, end), among equal ones those of
// the higher index.
template <typename Real>
void SelectBySorting(const std::vector<Real>& weights, const std::vector<Real>& product,
                     const std::vector<bool>& fixed, size_t first, size_t end, int64_t count,
                     std::vector<bool>& selected) {
  std::vector<std::pair<Real, size_t>> order;
  for (size_t i = first; i < end; ++i) {
    const Real score = weights[i] * product[i];
    if (!fixed[i] && score > 0) order.emplace_back(score, i);
  }
  std::sort(order.rbegin(), order.rend());
  for (size_t k = 0; k < order.size() && static_cast<int64_t>(k) < count; ++k) {
    selected[order[k].second] = true;
  }
}

template <typename Real>
double InnerOf(const std::vector<Real>& weights, const std::vector<Real>& product,
               const std::vector<bool>& fixed, const std::vector<bool>& vertex) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (fixed[i] || vertex[i]) continue;
    sum += static_cast<double>(weights[i]) * static_cast<double>(product[i]);
  }
  return sum;
}

// `distinct`: how many values there are, so that scores tie; 0: any.
template <typename Real>
std::vector<Real> Values(Random& random, int64_t size, int distinct) {
  std::vector<Real> values(static_cast<size_t>(size));
  for (Real& value : values) {
    const double drawn = random.Uniform() - 0.4;
    value = static_cast<Real>(distinct == 0 ? drawn : static_cast<int>(drawn * distinct));
  }
  return values;
}

std::vector<bool> Flags(Random& random, int64_t size, double share) {
  std::vector<bool> flags(static_cast<size_t>(size));
  for (size_t i = 0; i < flags.size(); ++i) flags[i] = random.Uniform() < share;
  return flags;
}

struct Case {
  std::string name;
  int64_t rows;
  int64_t cols;
  double wanted;  // of all entries
  int distinct;
};

template <typename Real>
void ExpectWhatSortingSelects(const Case& c, int least_hits) {
  Random random(11);
  const int64_t size = c.rows * c.cols;
  const auto wanted = static_cast<int64_t>(c.wanted * static_cast<double>(size));
  const auto weights = Values<Real>(random, size, c.distinct);
  auto product = Values<Real>(random, size, c.distinct);
  const std::vector<bool> fixed = Flags(random, size, 0.2);
  const Groups groups = {.whole_matrix = true};
  Selector<Real> selector(c.rows, c.cols, groups, wanted);
  selector.SetWeights(weights);
  selector.SetProduct(product);
  selector.SetFixed(fixed);
  int hits = 0;
  for (int step = 0; step < 14; ++step) {
    SCOPED_TRACE(c.name + " step " + std::to_string(step));
    // Small moves, then a large one, then small ones again.
    const double eta = step == 0 ? 0 : step == 8 ? 0.5 : 0.03125;
    const auto vertex_product = Values<Real>(random, size, c.distinct);
    selector.SetVertexProduct(vertex_product);
    const auto actual = selector.Select(eta);
    for (size_t i = 0; i < product.size(); ++i) {
      product[i] += static_cast<Real>(eta) * (vertex_product[i] - product[i]);
    }
    ASSERT_EQ(actual.product, product);
    std::vector<bool> expected(static_cast<size_t>(size));
    SelectBySorting(weights, product, fixed, 0, product.size(), wanted, expected);
    ASSERT_EQ(actual.vertex, expected);
    const double inner = InnerOf(weights, product, fixed, expected);
    EXPECT_NEAR(actual.inner, inner, 1e-9 * (std::abs(inner) + 1));
    hits += actual.within ? 1 : 0;
  }
  EXPECT_GE(hits, least_hits);
  EXPECT_LT(hits, 14) << "the first guess has nothing to rest on";
}

class WholeMatrixTest : public ::testing::TestWithParam<Case> {};

TEST_P(WholeMatrixTest, SelectsWhatSortingSelectsInTheWindowOrWithout) {
  ExpectWhatSortingSelects<float>(GetParam(), 8);
  ExpectWhatSortingSelects<double>(GetParam(), 8);
}

INSTANTIATE_TEST_SUITE_P(
    All, WholeMatrixTest,
    ::testing::Values(Case{"plain", 40, 330, 0.1, 0}, Case{"several_blocks", 70, 1000, 0.02, 0},
                      Case{"ties", 33, 130, 0.1, 9}, Case{"one_row", 1, 700, 0.2, 0},
                      // More than there are positive scores: the window is at 0.
                      Case{"all", 20, 100, 0.9, 0}),
    [](const auto& test) { return test.param.name; });

TEST(WholeMatrixTest, NothingWantedSelectsNothing) {
  Selector<float> selector(8, 64, {.whole_matrix = true}, 0);
  selector.SetWeights(std::vector<float>(8 * 64, 1));
  selector.SetProduct(std::vector<float>(8 * 64, 1));
  for (int step = 0; step < 3; ++step) {
    const auto outcome = selector.Select(0);
    EXPECT_EQ(outcome.vertex, std::vector<bool>(8 * 64));
    EXPECT_EQ(outcome.inner, 8 * 64);
  }
}

// Rows that fit shared memory, and rows that do not.
class RowTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(RowTest, SelectsWhatSortingSelects) {
  const int64_t rows = 3;
  const int64_t cols = GetParam();
  Random random(5);
  const auto weights = Values<float>(random, rows * cols, 0);
  auto product = Values<float>(random, rows * cols, 0);
  const auto vertex_product = Values<float>(random, rows * cols, 0);
  const std::vector<bool> fixed = Flags(random, rows * cols, 0.1);
  const int64_t capacity = cols * 2 / 5;
  const Groups groups = {.whole_matrix = false, .group_cols = cols, .capacity = capacity};
  Selector<float> selector(rows, cols, groups, 1);
  selector.SetWeights(weights);
  selector.SetProduct(product);
  selector.SetVertexProduct(vertex_product);
  selector.SetFixed(fixed);
  const auto actual = selector.Select(0.25);
  std::vector<bool> expected(product.size());
  for (size_t i = 0; i < product.size(); ++i) {
    product[i] += 0.25F * (vertex_product[i] - product[i]);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = static_cast<size_t>(row * cols);
    const auto end = first + static_cast<size_t>(cols);
    const auto kept =
        std::count(fixed.begin() + row * cols, fixed.begin() + (row + 1) * cols, true);
    SelectBySorting(weights, product, fixed, first, end, capacity - kept, expected);
  }
  EXPECT_EQ(actual.product, product);
  EXPECT_EQ(actual.vertex, expected);
  const double inner = InnerOf(weights, product, fixed, expected);
  EXPECT_NEAR(actual.inner, inner, 1e-9 * std::abs(inner));
}

INSTANTIATE_TEST_SUITE_P(All, RowTest, ::testing::Values(100, 5000, 30000),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace sparsefw::cuda
