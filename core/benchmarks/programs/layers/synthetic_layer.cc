#include "core/benchmarks/programs/layers/synthetic_layer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kDirections = 32;
constexpr float kSharedScale = 2;
// Spectrum::kDecaying has these instead.
constexpr int64_t kDecayingDirections = 256;
constexpr float kDecayingScale = 4;
constexpr float kNoise = 0.25F;
constexpr int64_t kDrawnTokens = 8192;
constexpr int64_t kTokensPerChunk = 1024;
constexpr int64_t kRowsPerBlock = 64;

// Streams of random numbers: one for every row, so that threads need not share.
enum Stream : uint64_t { kWeights, kDirectionsStream, kTokens, kScales };

class Random {
 public:
  Random(uint64_t seed, Stream stream, int64_t row)
      : state_((seed * 4 + stream) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(row)) {
    for (int i = 0; i < 4; ++i) Next();
  }

  // SplitMix64.
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(limit));
  }
  // Standard normal, by Box and Muller.
  void Fill(std::span<float> values) {
    for (size_t i = 0; i < values.size(); i += 2) {
      const uint64_t bits = Next();
      const float uniform = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
      const float angle =
          static_cast<float>(bits & 0xFFFFFF) * (0x1p-23f * std::numbers::pi_v<float>);
      const float radius = std::sqrt(-2 * std::log(uniform));
      values[i] = radius * std::cos(angle);
      if (i + 1 < values.size()) values[i + 1] = radius * std::sin(angle);
    }
  }

 private:
  uint64_t state_;
};

std::span<float> RowOf(Matrix<float>& matrix, int64_t row) {
  return {matrix.row(row), static_cast<size_t>(matrix.cols())};
}

Matrix<float> GaussianRows(int64_t rows, int64_t cols, uint64_t seed, Stream stream,
                           int64_t first = 0) {
  Matrix<float> result(rows, cols);
  ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Random(seed, stream, first + row).Fill(RowOf(result, row));
    }
  });
  return result;
}

// The direction of a token: number k with a share of 1 / k.
int64_t DrawnDirection(Random& random) {
  static const std::vector<double> sums = [] {
    std::vector<double> shares(kDecayingDirections);
    double sum = 0;
    for (int64_t k = 0; k < kDecayingDirections; ++k) {
      sum += 1 / static_cast<double>(k + 1);
      shares[static_cast<size_t>(k)] = sum;
    }
    return shares;
  }();
  const double drawn = sums.back() * static_cast<double>(random.Next() >> 11) * 0x1p-53;
  return std::upper_bound(sums.begin(), sums.end() - 1, drawn) - sums.begin();
}

Matrix<float> Tokens(int64_t first, int64_t count, const Matrix<float>& directions,
                     const Matrix<float>& scales, uint64_t seed, bool decays) {
  const float noise = decays ? kNoise : 1;
  const float shared = decays ? kDecayingScale : kSharedScale;
  Matrix<float> tokens = GaussianRows(count, directions.cols(), seed, kTokens, first);
  ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Random random(~seed, kTokens, first + row);
      const int64_t chosen = decays ? DrawnDirection(random) : random.Below(kDirections);
      const float* direction = directions.row(chosen);
      const float* scale = scales.row(0);
      for (float& value : RowOf(tokens, row)) {
        value = (noise * value + shared * *direction++) * *scale++;
      }
    }
  });
  return tokens;
}

// gram += factor (I + scale^2/32 D^T D)
void AddExpectation(const Matrix<float>& directions, float factor, Matrix<float>& gram) {
  const int64_t cols = directions.cols();
  Matrix<float> transposed(cols, kDirections);
  const float scale = factor * kSharedScale * kSharedScale / static_cast<float>(kDirections);
  for (int64_t col = 0; col < cols; ++col) {
    for (int64_t k = 0; k < kDirections; ++k) transposed(col, k) = scale * directions(k, col);
    gram(col, col) += factor;
  }
  Gemm<float>({.rows = cols, .cols = cols, .depth = kDirections, .accumulate = true}, transposed,
              directions, gram);
}

absl::StatusOr<Matrix<float>> MakeGram(int64_t cols, uint64_t seed, Spectrum spectrum) {
  const bool decays = spectrum == Spectrum::kDecaying;
  const Matrix<float> directions =
      GaussianRows(decays ? kDecayingDirections : kDirections, cols, seed, kDirectionsStream);
  Matrix<float> scales = GaussianRows(1, cols, seed, kScales);
  for (float& scale : scales.span()) scale = decays ? std::exp(scale) : 1;
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend("cpu"));
  SPARSEFW_ASSIGN_OR_RETURN(const auto sum, backend->CreateGramAccumulator(cols, 0));
  const int64_t drawn = std::min(2 * cols, kDrawnTokens);
  for (int64_t first = 0; first < drawn; first += kTokensPerChunk) {
    const int64_t count = std::min(kTokensPerChunk, drawn - first);
    SPARSEFW_RETURN_IF_ERROR(
        sum->Add(Tokens(first, count, directions, scales, seed, decays).view()));
  }
  Matrix<float> gram(cols, cols);
  Matrix<double> block(kRowsPerBlock, cols);
  for (int64_t first = 0; first < cols; first += kRowsPerBlock) {
    const int64_t count = std::min(kRowsPerBlock, cols - first);
    SPARSEFW_RETURN_IF_ERROR(sum->CopyRows(first, count, block.data()));
    ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::transform(block.row(row), block.row(row) + cols, gram.row(first + row),
                       [](double value) { return static_cast<float>(value); });
      }
    });
  }
  // Symmetric but for rounding after that, which is all that readers ask for.
  if (!decays && drawn < 2 * cols)
    AddExpectation(directions, static_cast<float>(2 * cols - drawn), gram);
  return gram;
}

SafetensorsTensor TensorOf(const std::string& name, const Matrix<float>& matrix) {
  return {.name = name,
          .dtype = DType::kF32,
          .shape = {matrix.rows(), matrix.cols()},
          .bytes = std::as_bytes(matrix.span())};
}

}  // namespace

absl::StatusOr<SyntheticLayer> MakeSyntheticLayer(int64_t rows, int64_t cols, uint64_t seed,
                                                  Spectrum spectrum) {
  if (rows < 1 || cols < 1) {
    return absl::InvalidArgumentError("rows and cols of a layer must be at least 1");
  }
  SyntheticLayer layer;
  layer.weights = GaussianRows(rows, cols, seed, kWeights);
  if (spectrum == Spectrum::kDecaying) {
    layer.dtype = DType::kBF16;
    for (float& weight : layer.weights.span()) weight = ToFloat(ToBFloat16(weight));
  }
  SPARSEFW_ASSIGN_OR_RETURN(layer.gram, MakeGram(cols, seed, spectrum));
  return layer;
}

Matrix<float> GaussianMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  return GaussianRows(rows, cols, seed, kWeights);
}

absl::Status WriteLayer(const std::string& path, const SyntheticLayer& layer) {
  std::array tensors = {TensorOf("weight", layer.weights), TensorOf("gram", layer.gram)};
  std::vector<BFloat16> halves;
  if (layer.dtype == DType::kBF16) {
    halves.resize(static_cast<size_t>(layer.weights.size()));
    std::transform(layer.weights.data(), layer.weights.data() + layer.weights.size(),
                   halves.begin(), ToBFloat16);
    tensors[0].dtype = layer.dtype;
    tensors[0].bytes = std::as_bytes(std::span(halves));
  }
  return WriteSafetensors(path, tensors, {});
}

}  // namespace sparsefw::bench
