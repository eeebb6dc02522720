// The incremental Frank-Wolfe iteration on one CUDA stream. frank_wolfe_kernels.h has the
// steps, core/src/frank_wolfe the scalars, docs/numerics.md the mathematics; all
// of them are those of the CPU engine (core/src/cpu/iteration/frank_wolfe.h).
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/toggle_history.h"
#include "core/src/cuda/iteration/update_form.h"
#include "core/src/cuda/linalg/symmetric_product.h"
#include "core/src/cuda/memory/device_arrays.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/runtime/stream.h"
#include "core/src/cuda/select/start_choice.h"
#include "core/src/frank_wolfe/incremental_frank_wolfe.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Iterations of an epoch of a layer with that many weights, padding included.
int64_t IterationsOfEpoch(int64_t size);

// Host memory that Save takes beside the caller's.
inline constexpr int64_t kSavedPieceBytes = int64_t{1} << 20;

// Rows of a dense product that are formed at a time. On an H100, 4096 rows at once took 0.38 ms
// and 1024 rows four times 0.44 ms (docs/benchmarks/gpu-log.md).
inline constexpr int64_t kPanelRows = 4096;
inline int64_t PanelRows(int64_t rows) { return std::min(kPanelRows, rows); }

// Memory on the device: E, U and x of W's size, four bit masks, what products take
// (symmetric_product.h) for panels of kPanelRows rows, and another panel while E is compared with a
// dense product. The saliency, of W's size in float32, from the first Round on.
//
// Threads: one at a time. Step enqueues iterations, most of them as launches of
// captured graphs, at most two epochs ahead of the device, and waits for the last.
//
// How U is updated is decided for an epoch at a time, by how many coordinates toggled in the epoch
// before the last: that is known without keeping the device waiting. Epochs begin at fixed
// iterations, so that the choice does not depend on how Step is cut.
template <typename Real>
class FrankWolfe final : public IncrementalFrankWolfe<DeviceSaliency> {
 public:
  // Evaluates loss and gap at M_0. `layer` and `context` must outlive it.
  static absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>> Start(
      const DeviceLayer<Real>& layer, const StartPoint& start, const FormOptions& forms,
      const ExecutionContext& context);
  // Where another iteration of the same layer, start and forms was saved.
  static absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>> Restore(
      const DeviceLayer<Real>& layer, const StartPoint& start, const FormOptions& forms,
      StateReader& reader, const ExecutionContext& context);
  ~FrankWolfe() override;

  absl::StatusOr<StepStats> Step(const StepRequest& request) override;
  absl::StatusOr<RoundedMask> Round(const DeviceSaliency& saliency) override;
  absl::Status Save(StateWriter& writer) override;

 private:
  using Product = SymmetricProduct<Real>;

  // One iteration as a graph, from the second launch on.
  struct StepGraph {
    bool launched = false;
    int failures = 0;  // captures that failed
    GraphExec exec;
  };

  FrankWolfe(const DeviceLayer<Real>& layer, const FormOptions& forms,
             const ExecutionContext& context)
      : layer_(layer), forms_(forms), context_(context), arrays_(context.stream()) {}
  absl::Status Initialise();

  absl::Status RunSteps(const StepRequest& request);
  absl::Status EnqueueStep(int64_t iteration, UpdateForm form);
  template <typename Enqueue>
  absl::Status EnqueueGraph(StepGraph& graph, const Enqueue& enqueue);
  absl::Status EnqueuePlainStep(UpdateForm form, bool replace_product);
  absl::Status FormVertexProduct(Point vertex);
  absl::Status CompareWithDense(bool replace);
  // Body(first row, rows) for the panels that dense products are formed in.
  template <typename Body>
  absl::Status ForEachPanel(const Body& body);
  UpdateForm FormIn(int64_t epoch) const;
  absl::StatusOr<StepStats> ReadStats();
  absl::Status SkipSteps(const StepRequest& request);

  // frank_wolfe_state.cc
  absl::Status Allocate(const StartPoint& start);
  absl::Status RestoreFrom(StateReader& reader);
  template <typename Visit>
  absl::Status VisitState(const Visit& visit);

  const DeviceLayer<Real>& layer_;
  FormOptions forms_;
  const ExecutionContext& context_;
  DeviceArrays arrays_;  // of it_, but for these two:
  DeviceBuffer<BitWord> fixed_;
  DeviceBuffer<BitWord> previous_;
  DeviceBuffer<float> saliency_;  // empty before the first Round
  IterateView<Real> it_;
  std::optional<Product> product_;  // of panels of rows
  StepGraph graphs_[kUpdateForms];  // by form
  bool capturing_ = false;
  int64_t capture_failures_ = 0;
  int64_t iteration_ = 0;  // as of the last Step
  bool unfinished_ = false;
  ToggleHistory toggles_;
};

// Adds what belongs to the sizes in `it`, but for the masks that it begins with.
template <typename Real>
void LayOut(IterateView<Real>& it, DeviceArrays& arrays);

// Bytes on the device that an iteration holds beside the layer, from its first Round on.
template <typename Real>
int64_t FrankWolfeBytes(int64_t rows, int64_t cols);
// On top of them while the recurrences are compared with a dense product.
template <typename Real>
int64_t FrankWolfePanelBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_H_
