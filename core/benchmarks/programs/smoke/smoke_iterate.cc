#include "core/benchmarks/programs/smoke/smoke_iterate.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/src/cuda/runtime/shared_limit.h"

namespace sparsefw::bench {
namespace {

using cuda::BitWord;

constexpr double kFixedShare = 0.4;  // of every fourth column: 2:4 keeps two of four
constexpr double kVertexShare = 0.3;
constexpr double kToggledShare = 0.025;
constexpr float kOperandFactor = 0x1.0p14F;  // brings weights below 1 into the range of float16

template <typename Real>
std::vector<Real> Uniform(int64_t rows, int64_t cols, int64_t stride, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-0.5F, 0.5F);
  std::vector<Real> values(static_cast<size_t>(rows * stride));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      values[static_cast<size_t>(row * stride + col)] = static_cast<Real>(uniform(random));
    }
  }
  return values;
}

// Entries for which `chosen` says so.
template <typename Choose>
std::vector<BitWord> Bits(int64_t rows, int64_t cols, int64_t stride, const Choose& chosen) {
  std::vector<BitWord> words(static_cast<size_t>(rows * stride / 32));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t i = row * stride + col;
      if (chosen(i)) words[static_cast<size_t>(i / 32)] |= BitWord{1} << (i % 32);
    }
  }
  return words;
}

template <typename Real>
cuda::IterateView<Real> ShapeOf(const Pattern& pattern, int64_t rows, int64_t cols) {
  cuda::IterateView<Real> it;
  it.rows = rows;
  it.cols = cols;
  it.stride = cuda::StrideOf(cols);
  it.groups = GroupsOf(pattern, rows, cols);
  it.shared_bytes = OrDie(cuda::SharedBytesForRows());
  return it;
}

}  // namespace

template <typename Real>
SmokeIterate<Real>::SmokeIterate(const Pattern& pattern, int64_t rows, int64_t cols)
    : d_weights_(rows * cuda::StrideOf(cols)),
      d_gram_(cols * cuda::StrideOf(cols)),
      d_product_(rows * cuda::StrideOf(cols)),
      d_vertex_product_(rows * cuda::StrideOf(cols)),
      d_entries_(rows * cuda::StrideOf(cols)),
      d_out_(rows * cuda::StrideOf(cols)),
      d_fixed_(rows * cuda::StrideOf(cols) / 32),
      d_previous_(rows * cuda::StrideOf(cols) / 32),
      d_vertex_(rows * cuda::StrideOf(cols) / 32),
      d_inside_(rows * cuda::StrideOf(cols) / 32),
      d_mask_(rows * cuda::StrideOf(cols) / 32),
      d_saliency_(rows * cuda::StrideOf(cols)),
      d_state_(1),
      d_window_(1),
      d_selection_(1),
      d_histogram_(cuda::kDigitBins + 1),
      d_partial_(3 * rows * cuda::ColumnChunks(cuda::StrideOf(cols)) + 3 * rows),
      d_row_sums_(cuda::RowSums(rows)),
      it_(ShapeOf<Real>(pattern, rows, cols)) {
  std::mt19937 random(7);
  const auto drawn = [&random](double share) {
    return std::uniform_real_distribution<double>()(random) < share;
  };
  const int64_t stride = it_.stride;
  weights_ = Uniform<Real>(rows, cols, stride, random);
  product_ = Uniform<Real>(rows, cols, stride, random);
  vertex_product_ = Uniform<Real>(rows, cols, stride, random);
  saliency_ = Uniform<float>(rows, cols, stride, random);
  gram_ = Uniform<Real>(cols, cols, stride, random);
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      gram_[static_cast<size_t>(i * stride + j)] = gram_[static_cast<size_t>(j * stride + i)];
    }
  }
  fixed_ = Bits(rows, cols, stride,
                [&](int64_t i) { return i % stride % 4 == 0 && drawn(kFixedShare); });
  previous_ = Bits(rows, cols, stride, [&](int64_t i) { return IsFree(i) && drawn(kVertexShare); });
  vertex_ = Bits(rows, cols, stride, [&](int64_t i) {
    return Bit(previous_, i) != (IsFree(i) && drawn(kToggledShare));
  });
  int64_t fixed = 0;
  for (int64_t i = 0; i < rows * stride; ++i) fixed += Bit(fixed_, i) ? 1 : 0;
  it_.free_total = it_.groups.total_kept - fixed;
  it_.weights = d_weights_.data();
  it_.gram = d_gram_.data();
  it_.product = d_product_.data();
  it_.vertex_product = d_vertex_product_.data();
  it_.entries = d_entries_.data();
  it_.fixed = d_fixed_.data();
  it_.previous = d_previous_.data();
  it_.vertex = d_vertex_.data();
  it_.state = d_state_.data();
  it_.scratch = {d_selection_.data(), d_histogram_.data(), d_histogram_.data() + cuda::kDigitBins,
                 d_window_.data(), d_inside_.data()};
  it_.partial = d_partial_.data();
  it_.row_sums = d_row_sums_.data();
  start_.recurrence.iteration = 3;
  start_.recurrence.relaxed_loss = 100;
  start_.scale.vertex_sum = 0.25;
  start_.recurrence.step_size = 0.125;
  d_weights_.Set(weights_);
  d_gram_.Set(gram_);
  d_fixed_.Set(fixed_);
  d_saliency_.Set(saliency_);
  Reset();
}

template <typename Real>
void SmokeIterate<Real>::Reset() {
  d_product_.Set(product_);
  d_vertex_product_.Set(vertex_product_);
  d_previous_.Set(previous_);
  d_vertex_.Set(vertex_);
  d_state_.Set({start_});
  d_window_.Set({cuda::WindowPass{}});
}

template <typename Real>
cuda::LeftOperand<Real> SmokeIterate<Real>::Operand() {
  if constexpr (std::is_same_v<Real, float>) {
    auto* halves = reinterpret_cast<uint16_t*>(d_out_.data());
    return {halves, halves + it_.rows * it_.stride, kOperandFactor};
  } else {
    return {d_out_.data()};
  }
}

template <typename Real>
std::vector<double> SmokeIterate<Real>::OperandValues() const {
  const std::vector<Real> out = d_out_.Get();
  if constexpr (std::is_same_v<Real, float>) {
    const auto* halves = reinterpret_cast<const uint16_t*>(out.data());
    std::vector<double> values(out.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float sum = cuda::FloatOfHalf(halves[i]) + cuda::FloatOfHalf(halves[values.size() + i]);
      values[i] = static_cast<double>(sum) / static_cast<double>(kOperandFactor);
    }
    return values;
  } else {
    return out;
  }
}

template <typename Real>
std::vector<double> SmokeIterate<Real>::Pruned(const std::vector<BitWord>& vertex) const {
  std::vector<double> pruned(weights_.size());
  for (size_t i = 0; i < pruned.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (IsFree(at) && !Bit(vertex, at)) pruned[i] = static_cast<double>(weights_[i]);
  }
  return pruned;
}

template <typename Real>
std::vector<double> SmokeIterate<Real>::Product(const std::vector<double>& pruned) const {
  std::vector<double> product(pruned.size());
  const int64_t stride = it_.stride;
  for (int64_t row = 0; row < it_.rows; ++row) {
    for (int64_t k = 0; k < it_.cols; ++k) {
      const double factor = pruned[static_cast<size_t>(row * stride + k)];
      if (factor == 0) continue;
      for (int64_t col = 0; col < it_.cols; ++col) {
        product[static_cast<size_t>(row * stride + col)] +=
            factor * static_cast<double>(gram_[static_cast<size_t>(k * stride + col)]);
      }
    }
  }
  return product;
}

template <typename Real>
double SmokeIterate<Real>::Inner(const std::vector<double>& pruned,
                                 const std::vector<Real>& product) const {
  double sum = 0;
  for (size_t i = 0; i < pruned.size(); ++i) sum += pruned[i] * static_cast<double>(product[i]);
  return sum;
}

template <typename Real>
std::vector<BitWord> SmokeIterate<Real>::SelectBySorting(const std::vector<Real>& product) const {
  std::vector<BitWord> selected(fixed_.size());
  const int64_t stride = it_.stride;
  const int64_t group_rows = it_.groups.whole_matrix ? it_.rows : 1;
  const int64_t group_cols = it_.groups.whole_matrix ? it_.cols : it_.groups.group_cols;
  for (int64_t first_row = 0; first_row < it_.rows; first_row += group_rows) {
    for (int64_t first = 0; first < it_.cols; first += group_cols) {
      std::vector<std::pair<Real, int64_t>> order;
      int64_t free_count = it_.groups.whole_matrix ? it_.free_total : it_.groups.capacity;
      for (int64_t row = first_row; row < first_row + group_rows; ++row) {
        for (int64_t col = first; col < first + group_cols; ++col) {
          const int64_t i = row * stride + col;
          const auto at = static_cast<size_t>(i);
          if (!IsFree(i)) {
            if (!it_.groups.whole_matrix) --free_count;
          } else if (weights_[at] * product[at] > 0) {
            order.emplace_back(weights_[at] * product[at], i);
          }
        }
      }
      std::sort(order.rbegin(), order.rend());
      const auto count = static_cast<size_t>(std::max<int64_t>(free_count, 0));
      for (size_t k = 0; k < std::min(order.size(), count); ++k) {
        const int64_t i = order[k].second;
        selected[static_cast<size_t>(i / 32)] |= BitWord{1} << (i % 32);
      }
    }
  }
  return selected;
}

template class SmokeIterate<float>;
template class SmokeIterate<double>;

}  // namespace sparsefw::bench
