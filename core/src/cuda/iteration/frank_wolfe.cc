#include "core/src/cuda/iteration/frank_wolfe.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kFlopsBetweenLooks = int64_t{1} << 40;  // some 20 ms in float32

// Weights whose iterations make up an epoch: some 10 ms of work on the slowest of
// the devices in question, for that is how soon a stop signal is seen.
constexpr int64_t kWeightsOfEpoch = int64_t{1} << 27;
constexpr int64_t kLongestEpoch = 16;

// Captures of a step that are tried before it is enqueued call by call for good.
constexpr int kMostCaptureFailures = 3;

}  // namespace

int64_t IterationsOfEpoch(int64_t size) {
  return std::clamp<int64_t>(kWeightsOfEpoch / size, 1, kLongestEpoch);
}

template <typename Real>
absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>> FrankWolfe<Real>::Start(
    const DeviceLayer<Real>& layer, const StartPoint& start, const FormOptions& forms,
    const ExecutionContext& context) {
  std::unique_ptr<FrankWolfe> result(new FrankWolfe(layer, forms, context));
  SPARSEFW_RETURN_IF_ERROR(result->Allocate(start));
  SPARSEFW_RETURN_IF_ERROR(result->Initialise());
  return result;
}

// Graphs and events must not go while the device uses them.
template <typename Real>
FrankWolfe<Real>::~FrankWolfe() {
  static_cast<void>(cudaStreamSynchronize(context_.stream()));
}

// V_{-1} := M_0 works since M_0 is itself a vertex; then U_{-1} = E_0.
template <typename Real>
absl::Status FrankWolfe<Real>::Initialise() {
  const cudaStream_t stream = context_.stream();
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBeginIteration(it_, stream));
  SPARSEFW_RETURN_IF_ERROR(FormVertexProduct(Point::kVertex));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchVertexLoss(it_, stream));
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(it_.product, it_.vertex_product, layer_.size(),
                                       cudaMemcpyDeviceToDevice, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSelect(it_, Motion::kStay, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchFinishStep(it_, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchCountToggles(it_, stream));
  StepState state;
  SPARSEFW_RETURN_IF_ERROR(CopyAndWait(&state, it_.state, 1, cudaMemcpyDeviceToHost, stream));
  SPARSEFW_ASSIGN_OR_RETURN(toggles_,
                            ToggleHistory::Create(IterationsOfEpoch(layer_.size()),
                                                  static_cast<int64_t>(state.pending), stream));
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<StepStats> FrankWolfe<Real>::Step(const StepRequest& request) {
  if (unfinished_) return absl::CancelledError("the engine was stopped in the middle of a step");
  SPARSEFW_RETURN_IF_ERROR(context_.CheckStop());
  unfinished_ = true;
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBeginStep(
      it_.state, {.line_search = request.rule == StepRule::kLineSearch, .rel_gap = request.rel_gap},
      context_.stream()));
  SPARSEFW_RETURN_IF_ERROR(it_.free_total == 0 ? SkipSteps(request) : RunSteps(request));
  SPARSEFW_ASSIGN_OR_RETURN(StepStats stats, ReadStats());
  if (request.measure_drift) {
    // Begins anew without a gap to stop at, which would stop the comparison.
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBeginStep(it_.state, {}, context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(CompareWithDense(false));
    SPARSEFW_ASSIGN_OR_RETURN(const StepStats compared, ReadStats());
    stats.drift = compared.drift;
  }
  unfinished_ = false;
  return stats;
}

template <typename Real>
absl::Status FrankWolfe<Real>::RunSteps(const StepRequest& request) {
  UpdateForm form = UpdateForm::kRows;
  const int64_t end = iteration_ + request.count;
  for (int64_t t = iteration_; t < end; ++t) {
    const int64_t epoch = toggles_.EpochOf(t);
    if (t == iteration_ || toggles_.BeginsEpoch(t)) {
      if (context_.stopped()) return context_.Await();
      // The device still has the epoch in between to work on.
      SPARSEFW_ASSIGN_OR_RETURN(const bool running, toggles_.Learn(epoch - 2));
      if (!running) break;
      form = FormIn(epoch);
    }
    SPARSEFW_RETURN_IF_ERROR(EnqueueStep(t, form));
    if (toggles_.BeginsEpoch(t + 1)) {
      SPARSEFW_RETURN_IF_ERROR(toggles_.Record(epoch, it_.state));
    }
  }
  return absl::OkStatus();
}

template <typename Real>
UpdateForm FrankWolfe<Real>::FormIn(int64_t epoch) const {
  const double share = toggles_.TogglesFor(epoch) /
                       (static_cast<double>(layer_.rows) * static_cast<double>(layer_.cols));
  return ChooseForm<Real>(share, product_->Products(Product::Values::kWeights), forms_);
}

template <typename Real>
absl::Status FrankWolfe<Real>::EnqueueStep(int64_t iteration, UpdateForm form) {
  const bool replace_product = RefreshesProduct(iteration);
  if (RefreshesVertexProduct(iteration)) {
    return EnqueuePlainStep(UpdateForm::kDense, replace_product);
  }
  if (replace_product) return EnqueuePlainStep(form, true);
  return EnqueueGraph(graphs_[static_cast<int>(form)],
                      [this, form] { return EnqueuePlainStep(form, false); });
}

// The first step loads its kernels, which a capture had better not do. Where a
// capture fails, since something in another thread spoiled it, the step is
// enqueued call by call, which is slower and the same; StepStats counts that.
template <typename Real>
template <typename Enqueue>
absl::Status FrankWolfe<Real>::EnqueueGraph(StepGraph& graph, const Enqueue& enqueue) {
  if (!graph.exec) {
    if (!std::exchange(graph.launched, true)) return enqueue();
    if (graph.failures == kMostCaptureFailures) return enqueue();
    capturing_ = true;
    absl::StatusOr<GraphExec> captured =
        CaptureGraph(context_.stream(), [&](cudaStream_t) { return enqueue(); });
    capturing_ = false;
    if (!captured.ok()) {
      ++graph.failures;
      ++capture_failures_;
      static_cast<void>(cudaGetLastError());  // nobody else should find it
      return enqueue();
    }
    graph.exec = *std::move(captured);
  }
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGraphLaunch(graph.exec.get(), context_.stream()));
  return absl::OkStatus();
}

// `replace_product`: E and L are computed anew.
template <typename Real>
absl::Status FrankWolfe<Real>::EnqueuePlainStep(UpdateForm form, bool replace_product) {
  const cudaStream_t stream = context_.stream();
  switch (form) {
    case UpdateForm::kRows:
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchVertexUpdate(it_, stream));
      break;
    case UpdateForm::kDense:
      SPARSEFW_RETURN_IF_ERROR(FormVertexProduct(Point::kNextVertex));
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchTakeStep(it_, stream));
      break;
  }
  if (replace_product) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchMove(it_, stream));
    SPARSEFW_RETURN_IF_ERROR(CompareWithDense(true));
  }
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchSelect(it_, replace_product ? Motion::kStay : Motion::kMove, stream));
  return ToStatus(LaunchFinishStep(it_, stream));
}

template <typename Real>
template <typename Body>
absl::Status FrankWolfe<Real>::ForEachPanel(const Body& body) {
  for (int64_t first = 0; first < layer_.rows; first += kPanelRows) {
    const int64_t count = std::min(kPanelRows, layer_.rows - first);
    SPARSEFW_RETURN_IF_ERROR(body(first, count));
    // So long that a stop signal has to be looked at in between.
    if (!capturing_ && 2 * count * layer_.stride * layer_.cols > kFlopsBetweenLooks) {
      SPARSEFW_RETURN_IF_ERROR(context_.Await());
    }
  }
  return absl::OkStatus();
}

// U of a vertex, by a dense product.
template <typename Real>
absl::Status FrankWolfe<Real>::FormVertexProduct(Point vertex) {
  return ForEachPanel([&](int64_t first, int64_t count) -> absl::Status {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchPruned(it_, vertex, first, count,
                                               product_->operand(Product::Values::kWeights),
                                               context_.stream()));
    return product_->Multiply(count, Product::Values::kWeights,
                              it_.vertex_product + first * layer_.stride);
  });
}

// E and the loss of the recurrence against D(M) G and its loss; `replace`:
// which then take their place.
template <typename Real>
absl::Status FrankWolfe<Real>::CompareWithDense(bool replace) {
  SPARSEFW_ASSIGN_OR_RETURN(
      auto dense,
      DeviceBuffer<Real>::Create(PanelRows(layer_.rows) * layer_.stride, context_.stream()));
  const absl::Status compared = ForEachPanel([&](int64_t first, int64_t count) -> absl::Status {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchPruned(it_, Point::kRelaxed, first, count,
                                               product_->operand(Product::Values::kAny),
                                               context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(product_->Multiply(count, Product::Values::kAny, dense.data()));
    return ToStatus(LaunchCompare(it_, first, count, dense.data(), replace, context_.stream()));
  });
  SPARSEFW_RETURN_IF_ERROR(compared);
  return ToStatus(LaunchFinishCompare(it_, replace, context_.stream()));
}

template <typename Real>
absl::StatusOr<StepStats> FrankWolfe<Real>::ReadStats() {
  StepState state;
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(&state, it_.state, 1, cudaMemcpyDeviceToHost, context_.stream()));
  const Recurrence& at = state.recurrence;
  iteration_ = at.iteration;
  toggles_.LearnUpTo(iteration_);
  return StepStats{.iteration = at.iteration,
                   .relaxed_loss = at.relaxed_loss,
                   .gap = at.gap,
                   .step_size = at.step_size,
                   .lower_bound = at.lower_bound,
                   .toggled = static_cast<int64_t>(state.toggled),
                   .reached_gap = state.stopped != 0,
                   .drift = state.drift,
                   .engine = {.capture_failures = capture_failures_}};
}

// Nothing is free: no step can move the iterate, so none needs to be computed.
template <typename Real>
absl::Status FrankWolfe<Real>::SkipSteps(const StepRequest& request) {
  StepState state;
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(&state, it_.state, 1, cudaMemcpyDeviceToHost, context_.stream()));
  if (state.stopped != 0 || request.count == 0) return absl::OkStatus();
  state.recurrence.iteration += request.count - 1;
  state.recurrence.step_size = ChooseStep<Real>(state);
  ++state.recurrence.iteration;
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(it_.state, &state, 1, cudaMemcpyHostToDevice, context_.stream()));
  return absl::OkStatus();
}

template <typename Real>
absl::StatusOr<RoundedMask> FrankWolfe<Real>::Round(const DeviceSaliency& saliency) {
  SPARSEFW_RETURN_IF_ERROR(context_.CheckStop());
  const cudaStream_t stream = context_.stream();
  if (saliency_.size() == 0) {
    SPARSEFW_ASSIGN_OR_RETURN(saliency_, saliency.Scores(context_));
  }
  SPARSEFW_ASSIGN_OR_RETURN(auto bits,
                            DeviceBuffer<BitWord>::Create(layer_.rows * layer_.words(), stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRound(it_, saliency_.data(), bits.data(), stream));
  std::vector<double> partial(static_cast<size_t>(RoundingBlocks(it_)));
  SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(partial.data(), it_.partial, std::ssize(partial),
                                       cudaMemcpyDeviceToHost, stream));
  RoundedMask rounded;
  SPARSEFW_ASSIGN_OR_RETURN(rounded.mask,
                            DownloadMask(bits.data(), layer_.rows, layer_.cols, stream));
  if (it_.groups.total_kept > 0) {
    rounded.threshold_residual = std::accumulate(partial.begin(), partial.end(), 0.0) /
                                 static_cast<double>(it_.groups.total_kept);
  }
  return rounded;
}

template class FrankWolfe<float>;
template class FrankWolfe<double>;

}  // namespace sparsefw::cuda
