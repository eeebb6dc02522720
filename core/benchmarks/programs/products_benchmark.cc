// Rates of the CPU engine's two products with G on one thread, beside SGEMM on
// the same thread: where the share of toggled coordinates makes the dense one
// faster is where frank_wolfe.cc should change over.
//
// Reported: flops of the terms that there are, so that rates compare directly.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/src/cpu/iteration/vertex_update.h"
#include "core/src/cpu/linalg/gram_product.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::bench {
namespace {

using cpu::SparseRows;

void SetFlops(benchmark::State& state, double flops) {
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate,
                                               benchmark::Counter::OneK::kIs1000);
}

PanelLayer<float> LayerOf(int64_t size) {
  PanelLayer<float> layer;
  layer.rows = size;
  layer.cols = size;
  layer.words = size / 64;
  Matrix<float> weights(size, size);
  layer.gram = Panels<float>(size, layer.words);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      weights(i, j) = 1.0F + static_cast<float>((i * 31 + j) % 97);
      layer.gram(i, j) = static_cast<float>((i * j) % 89);
    }
  }
  layer.weights = std::move(weights);
  return layer;
}

// One vertex update in which `share` of the coordinates toggle.
void Sparse(benchmark::State& state, int64_t size, double share) {
  cpu::Iterate<float> iterate;
  iterate.layer = std::make_shared<PanelLayer<float>>(LayerOf(size));
  iterate.blocks = BlocksOf(size, size);
  iterate.previous = BitRows(size, size);
  iterate.vertex = BitRows(size, size);
  iterate.vertex_product = Matrix<float>(size, size);
  // Three vertices in turns, each two of them that far apart: none is nearer than the last one.
  std::mt19937 random(1);
  std::bernoulli_distribution toggles(0.5 - std::sqrt(0.25 - share / 2));
  BitRows vertices[3] = {{size, size}, {size, size}, {size, size}};
  for (BitRows& vertex : vertices) {
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        if (toggles(random)) vertex.Set(i, j);
      }
    }
  }
  cpu::RelaxedMask<float> relaxed(iterate.previous, size, size);
  const ParallelContext context(1, nullptr);
  cpu::VertexUpdate<float> update(iterate, relaxed, context);
  int64_t terms = 0;
  size_t turn = 0;
  for (auto _ : state) {
    std::swap(iterate.vertex, vertices[turn]);
    terms = update.CountToggles()->terms;
    benchmark::DoNotOptimize(update.Apply([](int64_t) {}));
    std::swap(iterate.vertex, vertices[turn]);
    turn = (turn + 1) % 3;
  }
  SetFlops(state, 2.0 * static_cast<double>(terms * size));
}

void Dense(benchmark::State& state, int64_t size) {
  const PanelLayer<float> layer = LayerOf(size);
  const ParallelContext context(1, nullptr);
  Matrix<float> out(size, size);
  for (auto _ : state) {
    const absl::Status status = cpu::MultiplyByGram<float>(
        layer, context,
        [&](int64_t row, float* d) { std::copy_n(layer.weights.row(row), size, d); },
        [&](int64_t row, const float*, const float* p) { std::copy_n(p, size, out.row(row)); });
    if (!status.ok()) state.SkipWithError("stopped");
  }
  SetFlops(state, 2.0 * static_cast<double>(size * size * size));
}

void Sgemm(benchmark::State& state, int64_t size) {
  Matrix<float> a(size, size);
  Matrix<float> b(size, size);
  Matrix<float> c(size, size);
  const ParallelContext context(1);
  for (auto _ : state) {
    const GemmArgs<float> args = {.rows = size,
                                  .cols = size,
                                  .depth = size,
                                  .a = a.data(),
                                  .a_stride = size,
                                  .b = b.data(),
                                  .b_stride = size,
                                  .c = c.data(),
                                  .c_stride = size};
    static_cast<void>(Gemm(args, context));  // no limits: never cut short
  }
  SetFlops(state, 2.0 * static_cast<double>(size * size * size));
}

void RegisterAll() {
  for (const int64_t size : {2048, 4096}) {
    benchmark::RegisterBenchmark(absl::StrFormat("sgemm/%d", size).c_str(), Sgemm, size)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(absl::StrFormat("dense/%d", size).c_str(), Dense, size)
        ->Unit(benchmark::kMillisecond);
    for (const double share : {0.004, 0.02, 0.1, 0.25, 0.5}) {
      benchmark::RegisterBenchmark(absl::StrFormat("sparse/%d/share:%g", size, share).c_str(),
                                   Sparse, size, share)
          ->Unit(benchmark::kMillisecond);
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
