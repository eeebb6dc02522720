// Time of one Frank-Wolfe iteration: the CPU engine, averaged over the first
// 200 iterations, beside the dense float32 form of the same iteration (each of
// whose iterations costs the same: averaged over the first 10), and the
// ceilings of the machine, all in one run with the same threads.
//
// Reported time is that of ONE iteration. Counter relative_to_dense_loss: the
// engine's relaxed loss after 10 iterations over the dense form's after 10.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/benchmarks/bench_layer.h"
#include "core/benchmarks/dense_baseline.h"
#include "core/src/blas.h"
#include "core/src/parallel.h"
#include "sparsefw/backend.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kEngineSteps = 200;
constexpr int64_t kDenseSteps = 10;
constexpr double kSparsity = 0.6;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::unique_ptr<Engine> LoadEngine(const BenchLayer& layer, int threads, std::string* error) {
  const absl::StatusOr<const Backend*> backend = FindBackend("cpu");
  if (!backend.ok()) {
    *error = backend.status().ToString();
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine = (*backend)->CreateEngine({.threads = threads});
  absl::Status status = engine.status();
  if (status.ok()) status = (*engine)->Load(layer.problem());
  if (status.ok()) status = (*engine)->Step({}).status();  // converts and takes no step
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  return *std::move(engine);
}

// The relaxed loss after kDenseSteps, for the check beside the times.
double EngineLoss(const BenchLayer& layer, int threads) {
  std::string error;
  const std::unique_ptr<Engine> engine = LoadEngine(layer, threads, &error);
  if (engine == nullptr) return 0;
  const absl::StatusOr<StepStats> stats = engine->Step({.count = kDenseSteps});
  return stats.ok() ? stats->relaxed_loss : 0;
}

void CpuEngine(benchmark::State& state, int64_t size, const Pattern& pattern, double alpha,
               int threads) {
  const BenchLayer& layer = GetBenchLayer(size, size, pattern, alpha);
  for (auto _ : state) {
    std::string error;
    const std::unique_ptr<Engine> engine = LoadEngine(layer, threads, &error);
    if (engine == nullptr) {
      state.SkipWithError(error.c_str());
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<StepStats> stats = engine->Step({.count = kEngineSteps});
    state.SetIterationTime(SecondsSince(begin) / static_cast<double>(kEngineSteps));
    if (!stats.ok()) {
      state.SkipWithError(stats.status().ToString().c_str());
      return;
    }
  }
}

void DenseForm(benchmark::State& state, int64_t size, double alpha, int threads) {
  const BenchLayer& layer = GetBenchLayer(size, size, Pattern::Unstructured(kSparsity), alpha);
  const Arena arena(threads);
  double loss = 0;
  for (auto _ : state) {
    arena.Execute([&] {
      DenseBaseline baseline(layer);
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t step = 0; step < kDenseSteps; ++step) baseline.Step();
      state.SetIterationTime(SecondsSince(begin) / static_cast<double>(kDenseSteps));
      loss = baseline.RelaxedLoss();
    });
  }
  state.counters["relative_to_dense_loss"] = EngineLoss(layer, threads) / loss;
}

void Sgemm(benchmark::State& state, int64_t size, int threads) {
  Matrix<float> a(size, size);
  Matrix<float> b(size, size);
  Matrix<float> c(size, size);
  std::fill_n(a.data(), a.size(), 1.0F);
  std::fill_n(b.data(), b.size(), 1.0F);
  const Arena arena(threads);
  for (auto _ : state) {
    arena.Execute([&] {
      GemmF32({.rows = size,
               .cols = size,
               .depth = size,
               .a = a.data(),
               .a_stride = size,
               .b = b.data(),
               .b_stride = size,
               .c = c.data(),
               .c_stride = size});
    });
  }
  const double flops = 2.0 * static_cast<double>(size * size * size);
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate,
                                               benchmark::Counter::OneK::kIs1000);
}

void Triad(benchmark::State& state, int threads) {
  constexpr int64_t kCount = int64_t{1} << 25;  // 128 MiB an array
  Matrix<float> a(1, kCount);
  Matrix<float> b(1, kCount);
  Matrix<float> c(1, kCount);
  const Arena arena(threads);
  for (auto _ : state) {
    arena.Execute([&] {
      ParallelFor(kCount, kCount / 64, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) a.data()[i] = b.data()[i] + 3 * c.data()[i];
      });
    });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kCount * 3 * static_cast<int64_t>(sizeof(float)));
}

void RegisterEngines(int64_t size, int threads) {
  const std::string suffix = absl::StrFormat("/%d/threads:%d", size, threads);
  const std::vector<std::pair<std::string, Pattern>> patterns = {
      {"unstructured", Pattern::Unstructured(kSparsity)},
      {"per_row", Pattern::PerRow(kSparsity)},
      {"2:4", Pattern::KeepOfGroup(2, 4)}};
  for (const double alpha : {0.9, 0.0}) {
    benchmark::RegisterBenchmark(
        absl::StrFormat("dense_float32/unstructured/alpha:%g%s", alpha, suffix).c_str(), DenseForm,
        size, alpha, threads)
        ->UseManualTime()
        ->Iterations(2)
        ->Unit(benchmark::kMillisecond);
    for (const auto& [name, pattern] : patterns) {
      const std::string title = absl::StrFormat("cpu_engine/%s/alpha:%g%s", name, alpha, suffix);
      benchmark::RegisterBenchmark(title.c_str(), CpuEngine, size, pattern, alpha, threads)
          ->UseManualTime()
          ->Iterations(2)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void RegisterAll() {
  std::vector<int> thread_counts = {1};
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 1) thread_counts.push_back(cores);
  for (const int threads : thread_counts) {
    const std::string suffix = absl::StrFormat("/threads:%d", threads);
    benchmark::RegisterBenchmark(absl::StrCat("ceiling/sgemm_2048", suffix).c_str(), Sgemm, 2048,
                                 threads)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(absl::StrCat("ceiling/triad", suffix).c_str(), Triad, threads)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    for (const int64_t size : {1024, 2048}) RegisterEngines(size, threads);
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
