// Prunes one small layer with random values in this process and prints what that costs.
#include <cstdint>
#include <cstdio>
#include <random>

#include "sparsefw/backend.h"
#include "sparsefw/solver.h"

namespace {

sparsefw::Matrix<float> RandomMatrix(int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  sparsefw::Matrix<float> matrix(rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) matrix.data()[i] = normal(random);
  return matrix;
}

absl::StatusOr<sparsefw::SolveResult> SolveLayer() {
  const sparsefw::Matrix<float> weights = RandomMatrix(48, 64, 1);
  const sparsefw::Matrix<float> activations = RandomMatrix(256, 64, 2);
  sparsefw::Matrix<double> gram(64, 64);
  for (int64_t t = 0; t < activations.rows(); ++t) {
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t j = 0; j < 64; ++j) {
        gram(i, j) += double{activations(t, i)} * double{activations(t, j)};
      }
    }
  }
  const auto backend = sparsefw::FindBackend("cpu");
  if (!backend.ok()) return backend.status();
  sparsefw::Problem problem;
  problem.weights = weights.view();
  problem.gram = gram.view();
  problem.pattern = sparsefw::Pattern::PerRow(0.5);
  sparsefw::SolveOptions options;
  options.iterations = 100;
  return sparsefw::Solve(problem, options, **backend, nullptr, nullptr);
}

}  // namespace

int main() {
  const auto result = SolveLayer();
  if (!result.ok()) {
    std::fprintf(stderr, "solve_layer: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("kept %lld loss %.6g warm start %.6g lower bound %.6g\n",
              static_cast<long long>(result->kept_count), result->final_loss,
              result->warm_start_loss, result->lower_bound);
  return 0;
}
