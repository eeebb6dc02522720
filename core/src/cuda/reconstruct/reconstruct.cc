#include "core/src/cuda/reconstruct/reconstruct.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/src/cuda/linalg/float64_product.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/reconstruct/reconstructed_rows.h"
#include "core/src/cuda/reconstruct/row_conjugate_gradients.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kPanelRows = 2048;

template <typename Real>
class Reconstruction {
 public:
  // guess: null where rows begin at their masked weights.
  Reconstruction(const EngineProblem& problem, const DeviceLayer<Real>& layer, const Scale& scale,
                 const Matrix<float>* guess, const ExecutionContext& context)
      : layer_(layer),
        scale_(scale),
        dtype_(problem.weights.dtype()),
        gram_rounding_(GramRounding(problem.gram.dtype(), DTypeOf<Real>())),
        guess_(guess),
        context_(context),
        panel_rows_(std::min(kPanelRows, layer.rows)),
        weights_(layer.rows, layer.cols) {}

  absl::StatusOr<Matrix<float>> Run(const Mask& mask, const std::function<bool()>& out_of_time) {
    SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(mask, context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(Allocate());
    for (int64_t first = 0; first < layer_.rows; first += panel_rows_) {
      const ReconstructedRows<Real> panel = Panel(first);
      if (guess_ != nullptr) SPARSEFW_RETURN_IF_ERROR(UploadGuess(first, panel.rows));
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchTakeMasked(panel, context_.stream()));
      if (!out_of_time || !out_of_time()) {
        SPARSEFW_RETURN_IF_ERROR(SolvePanel(panel, out_of_time));
      }
      SPARSEFW_RETURN_IF_ERROR(Download(first, panel.rows));
    }
    return std::move(weights_);
  }

 private:
  absl::Status Allocate() {
    const int64_t size = panel_rows_ * layer_.stride;
    SPARSEFW_ASSIGN_OR_RETURN(result_, DeviceBuffer<float>::Create(size, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(product_, DeviceBuffer<double>::Create(size, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(masked_losses_,
                              DeviceBuffer<double>::Create(panel_rows_, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(losses_,
                              DeviceBuffer<double>::Create(panel_rows_, context_.stream()));
    SPARSEFW_ASSIGN_OR_RETURN(auto gradients,
                              RowConjugateGradients<Real>::Create(layer_, panel_rows_, context_));
    gradients_.emplace(std::move(gradients));
    if (guess_ == nullptr) return absl::OkStatus();
    gradients_->BeginSolved();
    SPARSEFW_ASSIGN_OR_RETURN(guess_rows_, DeviceBuffer<float>::Create(size, context_.stream()));
    return absl::OkStatus();
  }

  absl::Status UploadGuess(int64_t first, int64_t rows) {
    return StagedUpload(guess_->view().Rows(first, rows), guess_rows_.data(),
                        static_cast<size_t>(layer_.stride) * sizeof(float), context_.stream(),
                        context_.stop());
  }

  ReconstructedRows<Real> Panel(int64_t first) {
    return {.rows = std::min(panel_rows_, layer_.rows - first),
            .cols = layer_.cols,
            .stride = layer_.stride,
            .weights = layer_.weights.data() + first * layer_.stride,
            .gram = layer_.gram.data(),
            .gram_rounding = gram_rounding_,
            .kept = kept_.data() + first * layer_.words(),
            .result = result_.data(),
            .factor = scale_.weights_factor(),
            .dtype = dtype_,
            .guess = guess_rows_.data()};
  }

  absl::Status SolvePanel(const ReconstructedRows<Real>& panel,
                          const std::function<bool()>& out_of_time) {
    SPARSEFW_RETURN_IF_ERROR(RowLosses(panel, masked_losses_.data()));
    SPARSEFW_RETURN_IF_ERROR(gradients_->Solve(panel.kept, panel.rows, product_.data(),
                                               masked_losses_.data(), out_of_time));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchTakeSolution(panel, gradients_->solution(), context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(RowLosses(panel, losses_.data()));
    return ToStatus(
        LaunchKeepBetter(panel, masked_losses_.data(), losses_.data(), context_.stream()));
  }

  // Losses of the panel's weights in each row; product_ = (W - weights) G.
  absl::Status RowLosses(const ReconstructedRows<Real>& panel, double* losses) {
    const RawRows missing = {.weights = {panel.weights, DTypeOf<Real>(), panel.rows, panel.cols},
                             .stride = panel.stride,
                             .other = panel.result,
                             .other_factor = panel.factor};
    const auto fill = [&](int64_t first, int64_t count, int64_t depth, double* out) {
      return ToStatus(LaunchRawColumns(missing, first, count, depth, out, context_.stream()));
    };
    SPARSEFW_RETURN_IF_ERROR(Float64Product(layer_, panel.rows, fill, product_.data(), context_));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(
        losses, 0, static_cast<size_t>(panel.rows) * sizeof(double), context_.stream()));
    return ToStatus(LaunchAddRowDots(missing, product_.data(), losses, context_.stream()));
  }

  absl::Status Download(int64_t first, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(layer_.cols) * sizeof(float);
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        cudaMemcpy2DAsync(weights_.row(first), row_bytes, result_.data(),
                          static_cast<size_t>(layer_.stride) * sizeof(float), row_bytes,
                          static_cast<size_t>(rows), cudaMemcpyDeviceToHost, context_.stream()));
    return context_.Await();
  }

  const DeviceLayer<Real>& layer_;
  const Scale scale_;
  const DType dtype_;
  const double gram_rounding_;
  const Matrix<float>* const guess_;
  const ExecutionContext& context_;
  const int64_t panel_rows_;
  Matrix<float> weights_;  // the result
  DeviceBuffer<BitWord> kept_;
  DeviceBuffer<float> result_;      // of a panel
  DeviceBuffer<float> guess_rows_;  // of a panel
  DeviceBuffer<double> product_;
  DeviceBuffer<double> masked_losses_;
  DeviceBuffer<double> losses_;
  std::optional<RowConjugateGradients<Real>> gradients_;
};

}  // namespace

template <typename Real>
absl::StatusOr<Matrix<float>> ReconstructWeights(const EngineProblem& problem,
                                                 const DeviceLayer<Real>& layer, const Scale& scale,
                                                 const Mask& mask,
                                                 const ReconstructRequest& request,
                                                 const ExecutionContext& context) {
  return Reconstruction<Real>(problem, layer, scale, nullptr, context)
      .Run(mask, request.out_of_time);
}

template <typename Real>
absl::StatusOr<Matrix<float>> SolveOnMask(const EngineProblem& problem,
                                          const DeviceLayer<Real>& layer, const Scale& scale,
                                          const Mask& mask, const Matrix<float>& guess,
                                          const std::function<bool()>& out_of_time,
                                          const ExecutionContext& context) {
  return Reconstruction<Real>(problem, layer, scale, &guess, context).Run(mask, out_of_time);
}

template <typename Real>
int64_t ReconstructBytes(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  const int64_t panel = std::min(kPanelRows, rows);
  const int64_t bits = rows * stride / 8;
  return bits + (4 + 8) * panel * stride + 2 * 8 * panel +
         RowConjugateGradients<Real>::Bytes(panel, cols) + Float64ProductBytes<Real>(panel, cols);
}

template <typename Real>
int64_t SolveOnMaskBytes(int64_t rows, int64_t cols) {
  return ReconstructBytes<Real>(rows, cols) + 4 * std::min(kPanelRows, rows) * StrideOf(cols);
}

template int64_t SolveOnMaskBytes<float>(int64_t, int64_t);
template int64_t SolveOnMaskBytes<double>(int64_t, int64_t);
template absl::StatusOr<Matrix<float>> SolveOnMask(const EngineProblem&, const DeviceLayer<float>&,
                                                   const Scale&, const Mask&, const Matrix<float>&,
                                                   const std::function<bool()>&,
                                                   const ExecutionContext&);
template absl::StatusOr<Matrix<float>> SolveOnMask(const EngineProblem&, const DeviceLayer<double>&,
                                                   const Scale&, const Mask&, const Matrix<float>&,
                                                   const std::function<bool()>&,
                                                   const ExecutionContext&);
template int64_t ReconstructBytes<float>(int64_t, int64_t);
template int64_t ReconstructBytes<double>(int64_t, int64_t);
template absl::StatusOr<Matrix<float>> ReconstructWeights(const EngineProblem&,
                                                          const DeviceLayer<float>&, const Scale&,
                                                          const Mask&, const ReconstructRequest&,
                                                          const ExecutionContext&);
template absl::StatusOr<Matrix<float>> ReconstructWeights(const EngineProblem&,
                                                          const DeviceLayer<double>&, const Scale&,
                                                          const Mask&, const ReconstructRequest&,
                                                          const ExecutionContext&);

}  // namespace sparsefw::cuda
