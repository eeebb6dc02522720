// SparseGPT and ALPS on the device: the time of each and of its parts.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/prune/inverse_factor.h"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/select/select_scores.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

// The engine alone, the layer on the device: the second run counts.
double TimeOfMethod(const SyntheticLayer& layer, const Pattern& pattern, WeightMethod method) {
  const Mask none(layer.weights.rows(), layer.weights.cols());
  const auto engine = OrDie(OrDie(FindBackend("cuda"))->CreateEngine({}));
  EngineProblem problem;
  problem.weights = layer.weights.view();
  problem.gram = layer.gram.view();
  problem.pattern = pattern;
  problem.warm = problem.fixed = &none;
  OrDie(engine->Load(problem));
  double ms = 0;
  for (int times = 0; times < 2; ++times) {
    const Stopwatch watch;
    OrDie(engine->Prune({.method = method}).status());
    ms = 1e3 * watch.seconds();
  }
  return ms;
}

template <typename T>
cuda::DeviceBuffer<T> Zeroed(int64_t size) {
  return OrDie(cuda::DeviceBuffer<T>::Zeroed(size, nullptr));
}

// The parts of both, on the unit matrix. The first two work on a stream of their own, which they
// wait for.
void SmokeParts(Smoke& smoke, int64_t rows, int64_t size) {
  const auto context = OrDie(cuda::ExecutionContext::Open(0, cuda::kWorkspaceBytes, nullptr));
  const int64_t stride = cuda::StrideOf(size);
  auto matrix = Zeroed<double>(size * stride);
  auto weights = Zeroed<double>(rows * stride);
  auto errors = Zeroed<double>(rows * cuda::kTileColumns);
  auto mask = Zeroed<cuda::BitWord>(rows * stride / 32);
  const auto none_kept = Zeroed<cuda::BitWord>(rows * stride / 32);
  auto scratch = Zeroed<unsigned char>(cuda::SelectionBytes(rows, size));
  OrDie(cuda::LaunchShift(nullptr, 1, false, size, stride, matrix.data(), nullptr));
  OrDie(cuda::ToStatus(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"));
  const auto factor = OrDie(cuda::InverseFactor::Create(size, *context));
  const auto time = [&](const std::string& name, const Smoke::Launch& launch) {
    smoke.Kernel(name, nullptr, launch);
  };
  time("Cholesky factor and its inverse", [&](cudaStream_t) {
    SPARSEFW_RETURN_IF_ERROR(factor->Factorize({matrix.data(), 0, false}).status());
    return context->Await();
  });
  time("inverse of the matrix", [&](cudaStream_t) {
    SPARSEFW_RETURN_IF_ERROR(factor->FormInverseOfMatrix());
    return context->Await();
  });
  cuda::SweepTile tile = {.rows = rows,
                          .stride = stride,
                          .width = std::min<int64_t>(size / 4 * 4, cuda::kTileColumns),
                          .weights = weights.data(),
                          .factor = matrix.data(),
                          .group = 4,
                          .keep = 2,
                          .mask = mask.data(),
                          .errors = errors.data()};
  const auto sweep = [&](cudaStream_t stream) {
    return cuda::ToStatus(cuda::LaunchSweepTile(tile, stream));
  };
  time("tile of SparseGPT, 2:4", sweep);
  tile.chosen = none_kept.data();
  tile.chosen_words = stride / 32;
  time("tile of SparseGPT, all pruned", sweep);
  const cuda::SalientWeights salient = {{weights.data(), DType::kF64, rows, size}, matrix.data()};
  for (const bool whole : {true, false}) {
    const cuda::SelectionSpace space = {rows, size, scratch.data(), 96 << 10};
    const Groups groups = {whole, size, 1, size / 2, rows * size / 2};
    time(whole ? "largest of the matrix" : "largest of every row", [&](cudaStream_t stream) {
      return cuda::ToStatus(
          cuda::LaunchSelectLargest(space, weights.data(), groups, mask.data(), stream));
    });
    time(whole ? "start of the matrix" : "start of every row", [&](cudaStream_t stream) {
      return cuda::ToStatus(
          cuda::LaunchSelectSalient(space, salient, nullptr, groups, mask.data(), stream));
    });
  }
}

}  // namespace

void SmokePrune(Smoke& smoke, int64_t rows, int64_t cols) {
  const absl::Status prunes = OrDie(FindBackend("cuda"))->CheckPrune();
  if (!prunes.ok()) {
    smoke.Report("cuSOLVER", false, std::string(prunes.message()));
    return;
  }
  SmokeParts(smoke, rows, cols);
  const SyntheticLayer layer = OrDie(MakeSyntheticLayer(rows, cols, 20));
  for (const std::string pattern : {"unstructured:0.6", "per_row:0.6", "2:4"}) {
    for (const auto& [method, words] : {std::pair{WeightMethod::kSparseGpt, "SparseGPT"},
                                        std::pair{WeightMethod::kAlps, "ALPS"}}) {
      const std::string name = absl::StrFormat("%s, %s", words, pattern);
      smoke.Begin(name);
      const double ms = TimeOfMethod(layer, ParsePattern(pattern), method);
      smoke.Report(name, true, absl::StrFormat("%.1f ms", ms), {{"ms", ms}});
    }
  }
}

}  // namespace sparsefw::bench
