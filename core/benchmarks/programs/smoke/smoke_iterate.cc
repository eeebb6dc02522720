#include "core/benchmarks/programs/smoke/smoke_iterate.h"

#include <bit>
#include <random>

#include "core/src/cuda/iteration/frank_wolfe.h"
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

bool Bit(const std::vector<BitWord>& words, int64_t i) {
  return ((words[static_cast<size_t>(i / 32)] >> (i % 32)) & 1U) != 0;
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

}  // namespace

SmokeIterate::SmokeIterate(const Pattern& pattern, int64_t rows, int64_t cols) {
  const int64_t stride = cuda::StrideOf(cols);
  std::mt19937 random(7);
  const auto drawn = [&random](double share) {
    return std::uniform_real_distribution<double>()(random) < share;
  };
  const std::vector<float> weights = Uniform(rows, cols, stride, random);
  product_ = Uniform(rows, cols, stride, random);
  vertex_product_ = Uniform(rows, cols, stride, random);
  const std::vector<float> saliency = Uniform(rows, cols, stride, random);
  std::vector<float> gram = Uniform(cols, cols, stride, random);
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      gram[static_cast<size_t>(i * stride + j)] = gram[static_cast<size_t>(j * stride + i)];
    }
  }
  const std::vector<BitWord> fixed = Bits(
      rows, cols, stride, [&](int64_t i) { return i % stride % 4 == 0 && drawn(kFixedShare); });
  const auto is_free = [&](int64_t i) { return !Bit(fixed, i); };
  previous_ =
      Bits(rows, cols, stride, [&](int64_t i) { return is_free(i) && drawn(kVertexShare); });
  vertex_ = Bits(rows, cols, stride, [&](int64_t i) {
    return Bit(previous_, i) != (is_free(i) && drawn(kToggledShare));
  });
  it_ = {.rows = rows,
         .cols = cols,
         .stride = stride,
         .groups = GroupsOf(pattern, rows, cols),
         .shared_bytes = OrDie(cuda::SharedBytesForRows()),
         .weights = Placed(weights),
         .gram = Placed(gram),
         .fixed = Placed(fixed),
         .previous = Placed(previous_)};
  it_.free_total = it_.groups.total_kept;
  for (const BitWord word : fixed) it_.free_total -= std::popcount(word);
  saliency_ = Placed(saliency);
  columns_ = Placed(std::vector<float>(static_cast<size_t>(stride), 1));
  cuda::LayOut(it_, arrays_);
  arrays_.Add(rows * stride / 32, mask_);
  arrays_.Add(rows * stride, out_);
  OrDie(arrays_.status());
  OrDie(cuda::LaunchBeginIteration(it_, nullptr));
  Reset();
}

void SmokeIterate::Reset() {
  Put(product_, it_.product);
  Put(vertex_product_, it_.vertex_product);
  Put(previous_, it_.previous);
  Put(vertex_, it_.vertex);
  cuda::StepState start;
  start.recurrence.iteration = 3;
  start.recurrence.relaxed_loss = 100;
  start.scale.vertex_sum = 0.25;
  start.recurrence.step_size = 0.125;
  Put<cuda::StepState>({start}, it_.state);
  Put<cuda::WindowPass>({{}}, it_.scratch.window);
}

cuda::LeftOperand<float> SmokeIterate::Operand() {
  auto* halves = reinterpret_cast<uint16_t*>(out_);
  return {halves, halves + it_.rows * it_.stride, kOperandFactor, columns_};
}

}  // namespace sparsefw::bench
