#include "core/benchmarks/programs/layers/bench_layer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/saliency.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kRank = 32;      // directions that tokens share
constexpr float kSharedScale = 2;  // their weight against independent noise
constexpr int64_t kTokensPerChunk = 1024;

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::cerr << "benchmark layer: " << result.status().ToString() << '\n';
    std::exit(1);
  }
  return *std::move(result);
}

void OrDie(const absl::Status& status) {
  if (!status.ok()) OrDie(absl::StatusOr<int>(status));
}

Matrix<float> Gaussian(int64_t rows, int64_t cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Matrix<float> result(rows, cols);
  std::generate_n(result.data(), result.size(), [&] { return normal(random); });
  return result;
}

Matrix<float> CorrelatedGram(int64_t cols, std::mt19937& random) {
  const Backend* backend = OrDie(FindBackend("cpu"));
  const std::unique_ptr<GramAccumulator> sum = OrDie(backend->CreateGramAccumulator(cols, 0));
  const Matrix<float> directions = Gaussian(kRank, cols, random);
  for (int64_t done = 0; done < 2 * cols; done += kTokensPerChunk) {
    Matrix<float> chunk = Gaussian(std::min(kTokensPerChunk, 2 * cols - done), cols, random);
    for (int64_t token = 0; token < chunk.rows(); ++token) {
      const int64_t direction = static_cast<int64_t>(random() % kRank);
      for (int64_t col = 0; col < cols; ++col) {
        chunk(token, col) += kSharedScale * directions(direction, col);
      }
    }
    OrDie(sum->Add(chunk.view()));
  }
  const Matrix<double> gram = OrDie(sum->Snapshot());
  Matrix<float> result(cols, cols);
  std::transform(gram.data(), gram.data() + gram.size(), result.data(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

using Inputs = std::pair<Matrix<float>, Matrix<float>>;

const Inputs& GetInputs(int64_t rows, int64_t cols) {
  static std::map<std::pair<int64_t, int64_t>, Inputs> cache;
  Inputs& inputs = cache[{rows, cols}];
  if (inputs.first.size() == 0) {
    std::mt19937 random(20);
    inputs = {Gaussian(rows, cols, random), CorrelatedGram(cols, random)};
  }
  return inputs;
}

Matrix<float> Copy(const Matrix<float>& matrix) {
  Matrix<float> copy(matrix.rows(), matrix.cols());
  std::copy_n(matrix.data(), matrix.size(), copy.data());
  return copy;
}

}  // namespace

EngineProblem BenchLayer::problem() const {
  return {.weights = weights.view(),
          .gram = gram.view(),
          .pattern = pattern,
          .saliency = saliency.view(),
          .warm = &warm,
          .fixed = &fixed};
}

const BenchLayer& GetBenchLayer(int64_t rows, int64_t cols, const Pattern& pattern, double alpha) {
  static std::map<std::tuple<int64_t, int64_t, std::string, double>, BenchLayer> cache;
  const auto [entry, is_new] = cache.try_emplace({rows, cols, ToString(pattern), alpha});
  BenchLayer& layer = entry->second;
  if (!is_new) return layer;
  const auto& [weights, gram] = GetInputs(rows, cols);
  layer.weights = Copy(weights);
  layer.gram = Copy(gram);
  layer.pattern = pattern;
  std::vector<double> diagonal;
  for (int64_t i = 0; i < cols; ++i) diagonal.push_back(static_cast<double>(gram(i, i)));
  layer.saliency = OrDie(ComputeSaliency(layer.weights.view(), diagonal, {}));
  layer.warm = OrDie(TopScores(layer.saliency.view(), pattern));
  layer.fixed = OrDie(FixedSet(layer.saliency.view(), layer.warm, pattern, alpha));
  return layer;
}

}  // namespace sparsefw::bench
