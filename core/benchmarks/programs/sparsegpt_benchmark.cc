// Time of SparseGPT on a square layer, and beside it of its factor of the
// inverse alone, of all of Solve and of a float64 product of the same size, in
// one run with the same threads.
//
// Counter flops: (2/3 cols + rows) * cols^2, what its products take, a second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/bench_layer.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/sparsegpt/damping.h"
#include "core/src/sparsegpt/sparsegpt.h"
#include "sparsefw/solver.h"

namespace sparsefw::bench {
namespace {

constexpr double kSparsity = 0.6;

void SetFlops(benchmark::State& state, double flops) {
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate,
                                               benchmark::Counter::OneK::kIs1000);
}

void Prune(benchmark::State& state, int64_t size, const Pattern& pattern, int threads) {
  const BenchLayer& layer = GetBenchLayer(size, size, pattern, 0.9);
  const Problem problem = {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(),
                           nullptr};
  const ParallelContext context(threads, nullptr);
  for (auto _ : state) {
    const auto pruned = sparsegpt::Prune(problem, {}, context);
    if (!pruned.ok()) return state.SkipWithError(pruned.status().ToString().c_str());
  }
  const auto n = static_cast<double>(size);
  SetFlops(state, (2.0 / 3 + 1) * n * n * n);
}

// With validation and the four losses.
void WholeSolve(benchmark::State& state, int64_t size, const Pattern& pattern, int threads) {
  const BenchLayer& layer = GetBenchLayer(size, size, pattern, 0.9);
  const Problem problem = {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(),
                           nullptr};
  const SolveOptions options = {.method = Method::kSparseGpt, .threads = threads};
  for (auto _ : state) {
    const auto result = Solve(problem, options, **FindBackend("cpu"), nullptr, nullptr);
    if (!result.ok()) return state.SkipWithError(result.status().ToString().c_str());
  }
}

void Factor(benchmark::State& state, int64_t size, int threads) {
  const BenchLayer& layer = GetBenchLayer(size, size, Pattern::PerRow(kSparsity), 0.9);
  for (auto _ : state) {
    Matrix<double> gram(size, size);
    std::copy_n(layer.gram.data(), gram.size(), gram.data());
    const ParallelContext context(threads, nullptr);
    const auto factor = sparsegpt::FactorizeDamped(gram, size, 0.01, context);
    if (!factor.ok()) return state.SkipWithError(factor.status().ToString().c_str());
  }
  const auto n = static_cast<double>(size);
  SetFlops(state, 2.0 / 3 * n * n * n);
}

void Dgemm(benchmark::State& state, int64_t size, int threads) {
  Matrix<double> a(size, size);
  Matrix<double> c(size, size);
  std::fill_n(a.data(), a.size(), 1.0);
  const ParallelContext context(threads);
  for (auto _ : state) {
    const GemmArgs<double> args = {.rows = size,
                                   .cols = size,
                                   .depth = size,
                                   .a = a.data(),
                                   .a_stride = size,
                                   .b = a.data(),
                                   .b_stride = size,
                                   .c = c.data(),
                                   .c_stride = size};
    static_cast<void>(Gemm(args, context));  // no limits: never cut short
  }
  const auto n = static_cast<double>(size);
  SetFlops(state, 2 * n * n * n);
}

template <typename Function, typename... Args>
void Register(const std::string& name, Function function, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), function, args...)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  const std::vector<std::pair<std::string, Pattern>> patterns = {
      {"unstructured", Pattern::Unstructured(kSparsity)},
      {"per_row", Pattern::PerRow(kSparsity)},
      {"2:4", Pattern::KeepOfGroup(2, 4)}};
  std::vector<int> thread_counts = {1};
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 1) thread_counts.push_back(cores);
  for (const int threads : thread_counts) {
    for (const int64_t size : {1024, 2048, 4096}) {
      const std::string suffix = absl::StrFormat("/%d/threads:%d", size, threads);
      Register("dgemm" + suffix, Dgemm, size, threads);
      Register("factor" + suffix, Factor, size, threads);
      for (const auto& [name, pattern] : patterns) {
        Register("sparsegpt/" + name + suffix, Prune, size, pattern, threads);
        Register("solve/" + name + suffix, WholeSolve, size, pattern, threads);
      }
    }
  }
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  sparsefw::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
