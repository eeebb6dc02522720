// ALPS on the device.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/alps/penalty.h"
#include "core/src/alps/shifted_inverse.h"
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

class DeviceAlternation {
 public:
  // The layer in the units that make the diagonal of its gram 1; both must outlive it.
  static absl::StatusOr<DeviceAlternation> Create(const DeviceLayer<double>& layer,
                                                  const Pattern& pattern,
                                                  const PruneRequest& request,
                                                  const ExecutionContext& context) {
    DeviceAlternation result(layer, pattern, request, context);
    SPARSEFW_RETURN_IF_ERROR(result.Allocate());
    return result;
  }

  absl::Status Run() {
    SPARSEFW_RETURN_IF_ERROR(Multiply(layer_.weights, layer_.gram, y_));
    SPARSEFW_RETURN_IF_ERROR(SelectMagnitudes(layer_.weights.data()));
    SPARSEFW_RETURN_IF_ERROR(CopyBits(checked_));
    SPARSEFW_RETURN_IF_ERROR(CopyBits(first_));
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
    SPARSEFW_RETURN_IF_ERROR(SelectMagnitudes(b_.data()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchKeep(rows(), kept_.data(), b_.data(), b_.data(), stream));
    SPARSEFW_RETURN_IF_ERROR(Multiply(b_, layer_.gram, right_));
    SPARSEFW_ASSIGN_OR_RETURN(Count unfinished, Counted([&](Count* count) {
                                return LaunchBeginSupport(rows(), alps::kStepTolerance, count,
                                                          stream);
                              }));
    for (int64_t step = 0; step < alps::kSteps && unfinished > 0; ++step) {
      SPARSEFW_RETURN_IF_ERROR(Multiply(v_, layer_.gram, right_));
      SPARSEFW_ASSIGN_OR_RETURN(unfinished, Counted([&](Count* count) {
                                  return LaunchSupportStep(rows(), count, stream);
                                }));
    }
    return absl::OkStatus();
  }

  const DeviceBuffer<double>& weights() const { return b_; }
  const DeviceBuffer<BitWord>& kept() const { return kept_; }

  static int64_t Bytes(int64_t rows, int64_t cols) {
    const int64_t stride = StrideOf(cols);
    return 5 * 8 * rows * stride + 3 * rows * stride / 8 + int64_t{sizeof(SupportRow)} * rows + 64 +
           SelectionBytes(rows, cols) + InverseFactor::Bytes(cols);
  }

 private:
  DeviceAlternation(const DeviceLayer<double>& layer, const Pattern& pattern,
                    const PruneRequest& request, const ExecutionContext& context)
      : layer_(layer),
        groups_(GroupsOf(pattern, layer.rows, layer.cols)),
        request_(request),
        context_(context),
        penalty_(groups_.total_kept) {}

  absl::Status Allocate() {
    const cudaStream_t stream = context_.stream();
    for (DeviceBuffer<double>* matrix : {&y_, &b_, &d_, &v_, &right_}) {
      SPARSEFW_ASSIGN_OR_RETURN(*matrix, DeviceBuffer<double>::Zeroed(layer_.size(), stream));
    }
    for (DeviceBuffer<BitWord>* bits : {&kept_, &checked_, &first_}) {
      SPARSEFW_ASSIGN_OR_RETURN(
          *bits, DeviceBuffer<BitWord>::Create(layer_.rows * layer_.words(), stream));
    }
    SPARSEFW_ASSIGN_OR_RETURN(support_, DeviceBuffer<SupportRow>::Create(layer_.rows, stream));
    SPARSEFW_ASSIGN_OR_RETURN(count_, DeviceBuffer<Count>::Create(1, stream));
    SPARSEFW_ASSIGN_OR_RETURN(scratch_, DeviceBuffer<unsigned char>::Zeroed(
                                            SelectionBytes(layer_.rows, layer_.cols), stream));
    SPARSEFW_ASSIGN_OR_RETURN(shared_bytes_, SharedBytesForRows());
    SPARSEFW_ASSIGN_OR_RETURN(inverse_, InverseFactor::Create(layer_.cols, context_));
    return absl::OkStatus();
  }

  AlpsRows rows() {
    return {.rows = layer_.rows,
            .cols = layer_.cols,
            .stride = layer_.stride,
            .y = y_.data(),
            .b = b_.data(),
            .d = d_.data(),
            .v = v_.data(),
            .right = right_.data(),
            .kept = kept_.data(),
            .row = support_.data()};
  }

  absl::Status Multiply(const DeviceBuffer<double>& left, const DeviceBuffer<double>& symmetric,
                        DeviceBuffer<double>& out) const {
    return context_.product().MultiplyBySymmetric(layer_.rows, layer_.cols, layer_.stride,
                                                  left.data(), symmetric.data(), out.data());
  }

  // D the dense weights on their support, V = 0.
  absl::Status Begin() {
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        cudaMemsetAsync(v_.data(), 0, static_cast<size_t>(v_.size()) * 8, context_.stream()));
    return ToStatus(
        LaunchKeep(rows(), first_.data(), layer_.weights.data(), d_.data(), context_.stream()));
  }

  absl::Status Iterate() {
    const cudaStream_t stream = context_.stream();
    const double rho = penalty_.rho();
    SPARSEFW_RETURN_IF_ERROR(Shift(rho));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchRightSide(rows(), rho, stream));
    SPARSEFW_RETURN_IF_ERROR(context_.product().MultiplyBySymmetric(
        layer_.rows, layer_.cols, layer_.stride, std::as_const(right_).data(),
        inverse_->inverse_of_matrix(), b_.data()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScores(rows(), nullptr, rho, stream));
    SPARSEFW_RETURN_IF_ERROR(Select());
    return ToStatus(LaunchUpdateDual(rows(), rho, stream));
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

  // Keeps the largest of the scores in `right_`.
  absl::Status Select() {
    const SelectionSpace space = {layer_.rows, layer_.cols, scratch_.data(), shared_bytes_};
    return ToStatus(
        LaunchSelectLargest(space, right_.data(), groups_, kept_.data(), context_.stream()));
  }

  absl::Status SelectMagnitudes(const double* matrix) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchScores(rows(), matrix, 1, context_.stream()));
    return Select();
  }

  absl::Status CopyBits(DeviceBuffer<BitWord>& to) {
    return EnqueueCopy(to.data(), kept_.data(), to.size(), cudaMemcpyDeviceToDevice,
                       context_.stream());
  }

  // What `launch` counts. Waits for the stream and looks at the limits.
  template <typename Launch>
  absl::StatusOr<Count> Counted(const Launch& launch) {
    const cudaStream_t stream = context_.stream();
    Count count = 0;
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(count_.data(), 0, sizeof(Count), stream));
    SPARSEFW_CUDA_RETURN_IF_ERROR(launch(count_.data()));
    SPARSEFW_RETURN_IF_ERROR(EnqueueCopy(&count, count_.data(), 1, cudaMemcpyDeviceToHost, stream));
    SPARSEFW_RETURN_IF_ERROR(CheckLimits(request_, context_));
    return count;
  }

  absl::StatusOr<Penalty::Next> Adapt(int64_t iteration) {
    SPARSEFW_ASSIGN_OR_RETURN(const Count changed, Counted([&](Count* count) {
                                return LaunchCountChanged(kept_.data(), checked_.data(),
                                                          kept_.size(), count, context_.stream());
                              }));
    return penalty_.Adapt(iteration, static_cast<int64_t>(changed));
  }

  const DeviceLayer<double>& layer_;
  const Groups groups_;
  const PruneRequest& request_;
  const ExecutionContext& context_;
  Penalty penalty_;
  double rho_ = -1;                             // of inverse_
  DeviceBuffer<double> y_, b_, d_, v_, right_;  // [rows, stride]: prune_kernels.h
  DeviceBuffer<BitWord> kept_;
  DeviceBuffer<BitWord> checked_;  // kept_ at the last check
  DeviceBuffer<BitWord> first_;    // kept_ of the dense weights
  DeviceBuffer<SupportRow> support_;
  DeviceBuffer<Count> count_;
  DeviceBuffer<unsigned char> scratch_;  // of the selection
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
  SPARSEFW_ASSIGN_OR_RETURN(
      DeviceAlternation alternation,
      DeviceAlternation::Create(inputs.layer, inputs.pattern, request, context));
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
