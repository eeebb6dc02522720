// The joint search by the engine, and the launches of one batch, timed.
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/joint/batch_search.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/joint/joint_rows.h"
#include "core/src/joint/row_window.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/joint.h"

namespace sparsefw::bench {
namespace {

void TimeSearch(Smoke& smoke, const StartingPoint& start, const EngineProblem& problem,
                const std::string& pattern) {
  const std::string name = pattern + " joint search";
  smoke.Begin(name);
  const auto engine =
      OrDie(OrDie(FindBackend("cuda"))->CreateEngine({.precision = Precision::kFloat32}));
  OrDie(engine->Load(problem));
  const Matrix<float> weights = OrDie(engine->Reconstruct(start.warm, {}));
  const double start_loss = OrDie(engine->LossOfWeights(weights));
  const JointRequest request = {
      .options = {.excluded = JointExcluded(start.pattern, JointAlpha(start.pattern))},
      .fixed = &start.fixed,
      .weights = &weights};
  const Stopwatch watch;
  const JointResult result = OrDie(engine->SearchJointly(start.warm, request));
  const double seconds = watch.seconds();
  smoke.Report(name, result.loss < start_loss,
               absl::StrFormat("%.3f s, %d exchanges, loss %.4f of the start's", seconds,
                               result.exchanges, result.loss / start_loss),
               {{"ms", seconds * 1e3}, {"exchanges", result.exchanges}});
}

// Nine of 25 columns of a row are fixed, one is kept and one is outside; with groups two of four
// are kept and one is outside.
std::vector<RowWindow> Windows(int64_t rows, int64_t cols, bool groups) {
  const int64_t period = groups ? 4 : 25;
  const int64_t fixed = groups ? 0 : 9;
  const int64_t kept = groups ? 2 : 1;
  std::vector<RowWindow> windows(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    RowWindow& window = windows[static_cast<size_t>(row)];
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t of = (j + row) % period;
      std::vector<int32_t>& list = of < fixed           ? window.fixed
                                   : of < fixed + kept  ? window.kept
                                   : of == fixed + kept ? window.outside
                                                        : window.excluded;
      list.push_back(static_cast<int32_t>(j));
    }
  }
  return windows;
}

// The launches of a batch of rows.
void TimeBatch(Smoke& smoke, const SyntheticLayer& made, bool groups) {
  const auto context = OrDie(cuda::ExecutionContext::Open(0, cuda::kSmallWorkspaceBytes, nullptr));
  const cuda::DeviceLayer<float> layer = OnDevice(made, context->stream());
  const Matrix<float> drawn = GaussianMatrix(layer.rows, layer.stride, 22);
  const auto products =
      OrDie(context->Upload(std::vector<double>(drawn.data(), drawn.data() + drawn.size())));
  const Mask none(layer.rows, layer.cols);
  EngineProblem problem;
  problem.weights = made.weights.view();
  problem.gram = made.gram.view();
  problem.pattern = ParsePattern(groups ? "2:4" : "per_row:0.6");
  const JointRequest request = {.fixed = &none, .weights = &made.weights};
  JointRows rows(problem, {}, none, request);
  const std::function<bool()> never;
  cuda::SearchBudget budget(*context, never);
  const ParallelContext host(1);
  cuda::BatchSearch<float> search(layer, products.data(), rows, budget, host, *context);
  OrDie(search.Allocate());
  const std::vector<RowWindow> windows = Windows(layer.rows, layer.cols, groups);
  std::vector<int64_t> order(windows.size());
  std::iota(order.begin(), order.end(), 0);
  // tolerance: what an exchange, or an excluded column, must gain.
  const auto begin_with = [&](double tolerance) {
    for (const int64_t row : order) rows.state(row).tolerance = tolerance;
    OrDie(search.Begin(windows, order));
    OrDie(context->Await());
  };
  const auto begin = [&] { begin_with(0); };
  begin();
  const cuda::JointBatch<float>& batch = search.batch();
  const std::string of_rows =
      absl::StrFormat(" of %d rows, %s", batch.count, groups ? "2:4" : "narrow window");
  smoke.Kernel("joint tableaus" + of_rows, {},
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchBuild(batch, stream)); });
  smoke.Kernel("joint pass" + of_rows, begin,
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchPass(batch, stream)); });
  smoke.Kernel("joint weights" + of_rows, begin,
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchWeights(batch, stream)); });
  // As if every excluded column paid.
  const auto begin_border = [&] {
    begin_with(-1e30);
    OrDie(LaunchWeights(batch, nullptr));
    const auto bytes = static_cast<size_t>(batch.count * batch.stride) * sizeof(float);
    OrDie(cuda::ToStatus(cudaMemsetAsync(batch.rounded, 0, bytes, nullptr), "cudaMemsetAsync"));
    OrDie(LaunchAdmit(batch, cuda::kRoomOfRow, nullptr));
  };
  smoke.Kernel("joint admission" + of_rows, begin_border, [&](cudaStream_t stream) {
    return cuda::ToStatus(LaunchAdmit(batch, cuda::kRoomOfRow, stream));
  });
  smoke.Kernel("joint border" + of_rows, begin_border, [&](cudaStream_t stream) {
    return cuda::ToStatus(LaunchBorder(batch, batch.sizes.room, cuda::kRoomOfRow, stream));
  });
}

}  // namespace

void SmokeJoint(Smoke& smoke, int64_t rows, int64_t cols) {
  const SyntheticLayer made = OrDie(MakeSyntheticLayer(rows, cols, 21));
  const LayerFile layer = {nullptr, made.weights.view(), made.gram.view()};
  for (const std::string pattern : {"per_row:0.6", "unstructured:0.6", "2:4"}) {
    const Pattern parsed = ParsePattern(pattern);
    const StartingPoint start = MakeStartingPoint(layer, parsed, JointAlpha(parsed));
    TimeSearch(smoke, start, start.problem(layer), pattern);
  }
  for (const bool groups : {false, true}) TimeBatch(smoke, made, groups);
}

}  // namespace sparsefw::bench
