// The kernels of swaps, of new weights and of saliency, each on its own, from a start by saliency.
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/benchmarks/programs/layers/layer_file.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/memory/device_arrays.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/reconstruct/reconstruct_kernels.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/cuda/select/select_scores.h"
#include "core/src/cuda/swaps/swap_kernels.h"

namespace sparsefw::bench {
namespace {

constexpr int kSteps = 8;  // of every row in a launch

// A pruned layer on the device.
class Pruned {
 public:
  Pruned(Smoke& smoke, const SyntheticLayer& made, const std::string& pattern)
      : smoke_(smoke),
        name_(pattern + " "),
        groups_(GroupsOf(ParsePattern(pattern), made.weights.rows(), made.weights.cols())),
        context_(OrDie(cuda::ExecutionContext::Open(0, cuda::kWorkspaceBytes, nullptr))),
        layer_(OnDevice(made, stream())),
        start_(MakeStartingPoint({nullptr, made.weights.view(), made.gram.view()},
                                 ParsePattern(pattern), 0)),
        kept_(OrDie(cuda::UploadMask(start_.warm, stream()))) {
    rows_ = {.weights = {layer_.weights.data(), DType::kF32, layer_.rows, layer_.cols},
             .stride = layer_.stride,
             .kept = kept_.data()};
    product_ = New<double>(layer_.size());
    start_product_ = New<double>(layer_.size());
    OrDie(cuda::Float64Product(layer_, rows_, start_product_, *context_));
    count_ = New<int>(1);
  }

  void Swaps() {
    state_ = {.rows = layer_.rows,
              .cols = layer_.cols,
              .stride = layer_.stride,
              .group_cols = groups_.group_cols,
              .weights = layer_.weights.data(),
              .gram = layer_.gram.data(),
              .diagonal = New<double>(layer_.stride),
              .reach = New<double>(layer_.stride),
              .tolerance = New<double>(layer_.rows),
              .kept = New<cuda::BitWord>(kept_.size()),
              .order = New<int32_t>(layer_.size()),
              .scratch = New<int32_t>(layer_.size()),
              .product = product_,
              .progress = New<cuda::RowProgress>(layer_.rows),
              .shared_bytes = cuda::SharedProductBytes(
                  layer_.stride, static_cast<size_t>(OrDie(cuda::MostSharedBytes())))};
    Time("swaps: diagonal and reach", [&](cudaStream_t on) { return LaunchDiagonal(state_, on); });
    Time("swaps: tolerances", [&](cudaStream_t on) { return LaunchTolerance(state_, on); });
    if (groups_.whole_matrix) {
      BetweenRows();
    } else if (groups_.group_cols > cuda::kNarrowGroup) {
      Time("swaps: 8 steps of a sweep",
           [&](cudaStream_t on) { return LaunchSweepRows(state_, kSteps, count_, on); });
    } else {
      Time("swaps: 8 steps in groups",
           [&](cudaStream_t on) { return LaunchSwapGroups(state_, kSteps, count_, on); });
    }
  }

  void NewWeights() {
    cuda::GradientPanel<float> panel = {.cols = layer_.cols,
                                        .stride = layer_.stride,
                                        .preconditioner = New<float>(layer_.stride),
                                        .kept = kept_.data(),
                                        .solution = New<float>(layer_.size()),
                                        .residual = New<float>(layer_.size()),
                                        .direction = New<float>(layer_.size()),
                                        .product = New<float>(layer_.size()),
                                        .product_scale = nullptr,
                                        .rows = New<cuda::GradientRow>(layer_.rows),
                                        .active = New<int>(layer_.rows),
                                        .solved_before = false};
    std::vector<int> positions(static_cast<size_t>(layer_.rows));
    std::iota(positions.begin(), positions.end(), 0);
    Put(positions, panel.active);
    double* const losses = New<double>(layer_.rows);
    const auto begin = [&](cudaStream_t on) {
      return LaunchBeginGradients(panel, layer_.rows, product_, losses, count_, on);
    };
    Time("new weights: preconditioner",
         [&](cudaStream_t on) { return LaunchPreconditioner(panel, layer_.gram.data(), on); });
    Time("new weights: losses of rows",
         [&](cudaStream_t on) { return LaunchAddRowDots(rows_, product_, losses, on); });
    Time("new weights: begin", begin);
    // As if G were the unit matrix: every row takes a step.
    Time(
        "new weights: step without its product",
        [&](cudaStream_t on) { return LaunchGradientStep(panel, layer_.rows, 0, count_, on); },
        [&] {
          OrDie(begin(nullptr));
          OrDie(cuda::EnqueueCopy(panel.product, panel.direction, layer_.size(),
                                  cudaMemcpyDeviceToDevice, nullptr));
        });
    const cuda::ReconstructedRows<float> rows = {.rows = layer_.rows,
                                                 .cols = layer_.cols,
                                                 .stride = layer_.stride,
                                                 .weights = layer_.weights.data(),
                                                 .gram = layer_.gram.data(),
                                                 .gram_rounding = 0,
                                                 .kept = kept_.data(),
                                                 .result = New<float>(layer_.size()),
                                                 .factor = 1,
                                                 .dtype = DType::kF32};
    Time("new weights: solution",
         [&](cudaStream_t on) { return LaunchTakeSolution(rows, panel.solution, on); });
  }

  void Saliency() {
    const cuda::SalientWeights salient = {rows_.weights, New<double>(layer_.cols)};
    float* const scores = New<float>(layer_.size());
    Time("saliency", [&](cudaStream_t on) { return LaunchSaliency(salient, scores, on); });
  }

 private:
  cudaStream_t stream() const { return context_->stream(); }

  // Zeros.
  template <typename T>
  T* New(int64_t count) {
    T* array = nullptr;
    arrays_.AddZeroed(count, array);
    OrDie(arrays_.status());
    OrDie(context_->Await());
    return array;
  }

  // From E, the mask and the rows of the start, whatever the launch before made of them.
  template <typename Launched>
  void Time(
      const std::string& name, const Launched& launched,
      const std::function<void()>& prepare = [] {}) {
    const auto reset = [&] {
      OrDie(cuda::EnqueueCopy(product_, start_product_, layer_.size(), cudaMemcpyDeviceToDevice,
                              stream()));
      if (state_.rows > 0) {
        OrDie(cuda::EnqueueCopy(state_.kept, kept_.data(), kept_.size(), cudaMemcpyDeviceToDevice,
                                stream()));
        const auto bytes = static_cast<size_t>(layer_.rows) * sizeof(cuda::RowProgress);
        OrDie(cuda::ToStatus(cudaMemsetAsync(state_.progress, 0, bytes, stream()),
                             "cudaMemsetAsync"));
      }
      OrDie(context_->Await());
      prepare();
    };
    smoke_.Kernel(name_ + name, reset,
                  [&](cudaStream_t on) { return cuda::ToStatus(launched(on)); });
  }

  void BetweenRows() {
    auto* const terms = New<cuda::RowTerms>(layer_.rows);
    auto* const moves = New<cuda::RowMove>(cuda::kMostMoves);
    auto* const exchanges = New<cuda::RowExchanges>(1);
    const auto match = [&](cudaStream_t on) {
      return cuda::LaunchMatchRows(layer_.rows, state_.tolerance, terms, moves, exchanges, on);
    };
    const auto find_terms = [&] { OrDie(LaunchRowTerms(state_, terms, nullptr)); };
    Time("swaps: terms of rows",
         [&](cudaStream_t on) { return LaunchRowTerms(state_, terms, on); });
    Time("swaps: matching of rows", match, find_terms);
    Time(
        "swaps: moves of a round",
        [&](cudaStream_t on) { return LaunchRowMoves(state_, moves, exchanges, terms, on); },
        [&] {
          find_terms();
          OrDie(match(nullptr));
        });
  }

  Smoke& smoke_;
  const std::string name_;
  const Groups groups_;
  const std::unique_ptr<cuda::ExecutionContext> context_;
  const cuda::DeviceLayer<float> layer_;
  const StartingPoint start_;
  const cuda::DeviceBuffer<cuda::BitWord> kept_;
  cuda::DeviceArrays arrays_{stream()};
  cuda::RawRows rows_;
  double* start_product_ = nullptr;  // E = D G
  double* product_ = nullptr;        // E of a launch
  int* count_ = nullptr;
  cuda::SwapState<float> state_;  // rows 0: no swaps
};

}  // namespace

void SmokeRefine(Smoke& smoke, int64_t rows, int64_t cols) {
  const SyntheticLayer made = OrDie(MakeSyntheticLayer(rows, cols, 23));
  for (const std::string pattern : {"unstructured:0.6", "per_row:0.6", "2:4"}) {
    Pruned(smoke, made, pattern).Swaps();
  }
  Pruned pruned(smoke, made, "per_row:0.6");
  pruned.NewWeights();
  pruned.Saliency();
}

}  // namespace sparsefw::bench
