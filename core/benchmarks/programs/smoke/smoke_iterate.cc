#include "core/benchmarks/programs/smoke/smoke_iterate.h"

#include "core/src/cuda/runtime/shared_limit.h"

namespace sparsefw::bench {
namespace {

using cuda::BitWord;

constexpr double kFixedShare = 0.4;  // of every fourth column: 2:4 keeps two of four
constexpr double kVertexShare = 0.3;
constexpr double kToggledShare = 0.025;
constexpr float kOperandFactor = 0x1.0p14F;  // brings weights below 1 into the range of float16

std::vector<float> Uniform(int64_t rows, int64_t cols, int64_t stride, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-0.5F, 0.5F);
  std::vector<float> values(static_cast<size_t>(rows * stride));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      values[static_cast<size_t>(row * stride + col)] = uniform(random);
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

cuda::IterateView<float> ShapeOf(const Pattern& pattern, int64_t rows, int64_t cols) {
  cuda::IterateView<float> it;
  it.rows = rows;
  it.cols = cols;
  it.stride = cuda::StrideOf(cols);
  it.groups = GroupsOf(pattern, rows, cols);
  it.shared_bytes = OrDie(cuda::SharedBytesForRows());
  return it;
}

}  // namespace

SmokeIterate::SmokeIterate(const Pattern& pattern, int64_t rows, int64_t cols)
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
      it_(ShapeOf(pattern, rows, cols)) {
  std::mt19937 random(7);
  const auto drawn = [&random](double share) {
    return std::uniform_real_distribution<double>()(random) < share;
  };
  const int64_t stride = it_.stride;
  weights_ = Uniform(rows, cols, stride, random);
  product_ = Uniform(rows, cols, stride, random);
  vertex_product_ = Uniform(rows, cols, stride, random);
  saliency_ = Uniform(rows, cols, stride, random);
  gram_ = Uniform(cols, cols, stride, random);
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

void SmokeIterate::Reset() {
  d_product_.Set(product_);
  d_vertex_product_.Set(vertex_product_);
  d_previous_.Set(previous_);
  d_vertex_.Set(vertex_);
  d_state_.Set({start_});
  d_window_.Set({cuda::WindowPass{}});
}

cuda::LeftOperand<float> SmokeIterate::Operand() {
  auto* halves = reinterpret_cast<uint16_t*>(d_out_.data());
  return {halves, halves + it_.rows * it_.stride, kOperandFactor};
}

}  // namespace sparsefw::bench
