// ALPS on the device.
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "core/src/alps/penalty.h"
#include "core/src/alps/shifted_inverse.h"
#include "core/src/cuda/memory/device_arrays.h"
#include "core/src/cuda/prune/inverse_factor.h"
#include "core/src/cuda/prune/prune.h"
#include "core/src/cuda/prune/prune_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "core/src/cuda/select/select_scores.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

using alps::Penalty;
using Count = unsigned long long;

// Device memory of the alternation, but for the inverse.
struct AlpsMemory {
  AlpsRows rows;
  BitWord* checked = nullptr;        // rows.kept at the last check
  BitWord* first = nullptr;          // rows.kept of the dense weights
  Count* count = nullptr;            // one
  unsigned char* scratch = nullptr;  // of the selection
};

// What belongs to the sizes in `memory.rows`.
void LayOut(AlpsMemory& memory, DeviceArrays& arrays) {
  AlpsRows& it = memory.rows;
  const int64_t size = it.rows * it.stride;
  for (double** matrix : {&it.y, &it.b, &it.d, &it.v, &it.right}) arrays.AddZeroed(size, *matrix);
  for (BitWord** bits : {&it.kept, &memory.checked, &memory.first}) arrays.Add(size / 32, *bits);
  arrays.Add(it.rows, it.row);
  arrays.Add(1, memory.count);
  arrays.AddZeroed(SelectionBytes(it.rows, it.cols), memory.scratch);
}

class DeviceAlternation {
 public:
  // The layer in the units that make the diagonal of its gram 1; both must outlive it.
  DeviceAlternation(const DeviceLayer<double>& layer, const Pattern& pattern,
                    const PruneRequest& request, const ExecutionContext& context)
      : layer_(layer),
        groups_(GroupsOf(pattern, layer.rows, layer.cols)),
        request_(request),
        context_(context),
        penalty_(groups_.total_kept),
        arrays_(context.stream()),
        memory_({.rows = {.rows = layer.rows, .cols = layer.cols, .stride = layer.stride}}) {}
  DeviceAlternation(const DeviceAlternation&) = delete;  // it refers to its own members

  absl::Status Allocate() {
    LayOut(memory_, arrays_);
    SPARSEFW_RETURN_IF_ERROR(arrays_.status());
    SPARSEFW_ASSIGN_OR_RETURN(shared_bytes_, SharedBytesForRows());
    SPARSEFW_ASSIGN_OR_RETURN(inverse_, InverseFactor::Create(layer_.cols, context_));
    return absl::OkStatus();
  }

  absl::Status Run() {
    SPARSEFW_RETURN_IF_ERROR(Multiply(layer_.weights.data(), layer_.gram.data(), it_.y));
    SPARSEFW_RETURN_IF_ERROR(SelectMagnitudes(layer_.weights.data()));
    SPARSEFW_RETURN_IF_ERROR(CopyBits(memory_.checked));
    SPARSEFW_RETURN_IF_ERROR(CopyBits(memory_.first));
    SPARSEFW_RETURN_IF_ERROR(Begin());
    for (int64_t iteration = 1; iteration <= alps::kIterations; ++iteration) {
      SPARSEFW_RETURN_IF_ERROR(Iterate());
      if (iteration % alps::kCheckEvery != 0) continue;
      SPARSEFW_ASSIGN_OR_RETURN(const Penalty::Next next, Adapt(iteration));
      if (next == Penalty::Next::kEnd) break;
      if (next == Penalty::Next::kBeginAgain) SPARSEFW_RETURN_IF_ERROR(Begin());
    }
    return absl::OkStatus();
  }

  // Conjugate gradients on B H = Y, all rows at once, from the largest of B.
  absl::Status StepsOnSupport() {
    const cudaStream_t stream = context_.stream();
    SPARSEFW_RETURN_IF_ERROR(SelectMagnitudes(it_.b));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchKeep(it_, it_.kept, it_.b, it_.b, stream));
    SPARSEFW_RETURN_IF_ERROR(Multiply(it_.b, layer_.gram.data(), it_.right));
    SPARSEFW_ASSIGN_OR_RETURN(Count unfinished, Counted([&](Count* count) {
                                return LaunchBeginSupport(it_, alps::kStepTolerance, count, stream);
                              }));
    for (int64_t step = 0; step < alps::kSteps && unfinished > 0; ++step) {
      SPARSEFW_RETURN_IF_ERROR(Multiply(it_.v, layer_.gram.data(), it_.right));
      SPARSEFW_ASSIGN_OR_RETURN(
          unfinished, Counted([&](Count* count) { return LaunchSupportStep(it_, count, stream); }));
    }
    return absl::OkStatus();
  }

  const double* weights() const { return it_.b; }
  const BitWord* kept() const { return it_.kept; }

  static int64_t Bytes(int64_t rows, int64_t cols) {
    AlpsMemory memory = {.rows = {.rows = rows, .cols = cols, .stride = StrideOf(cols)}};
    DeviceArrays arrays;
    LayOut(memory, arrays);
    return arrays.bytes() + InverseFactor::Bytes(cols) + 64;
  }

 private:
  absl::Status Multiply(const double* left, const double* symmetric, double* out) const {
    return context_.MultiplyBySymmetric(layer_.rows, layer_.cols, layer_.stride, left, symmetric,
                                        out);
  }

  // D the dense weights on their support, V = 0.
  absl::Status Begin() {
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
        it_.v, 0, static_cast<size_t>(layer_.size()) * sizeof(double), context_.stream()));
    return ToStatus(
        LaunchKeep(it_, memory_.first, layer_.weights.data(), it_.d, context_.stream()));
  }

  absl::Status Iterate() {
    const cudaStream_t stream = context_.stream();
    const double rho = penalty_.rho();
    SPARSEFW_RETURN_IF_ERROR(Shift(rho));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRightSide(it_, rho, stream));
    SPARSEFW_RETURN_IF_ERROR(Multiply(it_.right, inverse_->inverse_of_matrix(), it_.b));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScores(it_, nullptr, rho, stream));
    SPARSEFW_RETURN_IF_ERROR(Select());
    return ToStatus(LaunchUpdateDual(it_, rho, stream));
  }

  // The inverse of H + rho I.
  absl::Status Shift(double rho) {
    if (rho == rho_) return absl::OkStatus();
    SPARSEFW_RETURN_IF_ERROR(CheckLimits(request_, context_));
    SPARSEFW_ASSIGN_OR_RETURN(const std::optional<sparsegpt::FailedPivot> failed,
                              inverse_->Factorize({layer_.gram.data(), rho, /*reversed=*/false}));
    if (failed) return alps::NotPositiveDefinite(rho, *failed);
    rho_ = rho;
    return inverse_->FormInverseOfMatrix();
  }

  // Keeps the largest of the scores in it_.right.
  absl::Status Select() {
    const SelectionSpace space = {layer_.rows, layer_.cols, memory_.scratch, shared_bytes_};
    return ToStatus(LaunchSelectLargest(space, it_.right, groups_, it_.kept, context_.stream()));
  }

  absl::Status SelectMagnitudes(const double* matrix) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScores(it_, matrix, 1, context_.stream()));
    return Select();
  }

  absl::Status CopyBits(BitWord* to) {
    return EnqueueCopy(to, it_.kept, layer_.rows * layer_.words(), cudaMemcpyDeviceToDevice,
                       context_.stream());
  }

  // What `launch` counts. Waits for the stream and looks at the limits.
  template <typename Launch>
  absl::StatusOr<Count> Counted(const Launch& launch) {
    SPARSEFW_ASSIGN_OR_RETURN(
        const Count count, context_.Counted(memory_.count, [&] { return launch(memory_.count); }));
    SPARSEFW_RETURN_IF_ERROR(CheckLimits(request_, context_));
    return count;
  }

  absl::StatusOr<Penalty::Next> Adapt(int64_t iteration) {
    SPARSEFW_ASSIGN_OR_RETURN(const Count changed, Counted([&](Count* count) {
                                return LaunchCountChanged(it_.kept, memory_.checked,
                                                          layer_.rows * layer_.words(), count,
                                                          context_.stream());
                              }));
    return penalty_.Adapt(iteration, static_cast<int64_t>(changed));
  }

  const DeviceLayer<double>& layer_;
  const Groups groups_;
  const PruneRequest& request_;
  const ExecutionContext& context_;
  Penalty penalty_;
  double rho_ = -1;  // of inverse_
  DeviceArrays arrays_;
  AlpsMemory memory_;
  AlpsRows& it_ = memory_.rows;
  int64_t shared_bytes_ = 0;
  std::unique_ptr<InverseFactor> inverse_;
};

// Adds the damping, then makes the diagonal 1; returns s on the device.
absl::StatusOr<DeviceBuffer<double>> Normalise(DeviceLayer<double>& layer,
                                               const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> diagonal,
                            DownloadDiagonal(layer, context.stream()));
  double mean = 0;
  for (const double entry : diagonal) mean += entry / static_cast<double>(layer.cols);
  std::vector<double> norms;
  for (const double entry : diagonal) {
    const double damped = entry + alps::kDamping * mean;
    norms.push_back(damped > 0 ? std::sqrt(damped) : 1);
  }
  SPARSEFW_ASSIGN_OR_RETURN(auto on_device, context.Upload(norms));
  const cudaStream_t stream = context.stream();
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchNormalise(layer.gram.data(), on_device.data(),
                                                alps::kDamping * mean, layer.cols, layer.stride,
                                                stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScaleColumns(layer.weights.data(), on_device.data(),
                                                   layer.rows, layer.cols, layer.stride, stream));
  return on_device;
}

}  // namespace

absl::StatusOr<PrunedWeights> PruneByAlps(PruneInputs inputs, const PruneRequest& request,
                                          const ExecutionContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const DeviceBuffer<double> norms, Normalise(inputs.layer, context));
  DeviceAlternation alternation(inputs.layer, inputs.pattern, request, context);
  SPARSEFW_RETURN_IF_ERROR(alternation.Allocate());
  SPARSEFW_RETURN_IF_ERROR(alternation.Run());
  SPARSEFW_RETURN_IF_ERROR(alternation.StepsOnSupport());
  return DownloadPruned(inputs, alternation.weights(), norms.data(), alternation.kept(),
                        alps::kDamping, context);
}

int64_t AlpsDeviceBytes(int64_t rows, int64_t cols) {
  return LayerBytes<double>(rows, cols) + 8 * cols + DeviceAlternation::Bytes(rows, cols) +
         4 * rows * cols;
}

}  // namespace sparsefw::cuda
