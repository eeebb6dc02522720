#include "core/src/cuda/linalg/mask_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kStripeRows = 512;  // rows of G at a time
constexpr int64_t kPanelRows = 1024;  // rows of D G at a time

class LossSum {
 public:
  // Either `mask` or `other` is null.
  LossSum(const RawMatrix& weights, const RawMatrix& gram, const Mask* mask,
          const Matrix<float>* other, const Scale& scale, const ExecutionContext& context)
      : weights_(weights),
        gram_(gram),
        mask_(mask),
        other_(other),
        scale_(scale),
        context_(context),
        stripe_(std::min(kStripeRows, gram.rows)),
        panel_rows_(std::min(kPanelRows, weights.rows)) {}

  absl::StatusOr<double> Run() {
    SPARSEFW_RETURN_IF_ERROR(Allocate());
    const RawRows rows = {.weights = weights_,
                          .stride = weights_.cols,
                          .kept = kept_.data(),
                          .other = other_weights_.data(),
                          .factor = scale_.weights_factor(),
                          .other_factor = scale_.weights_factor()};
    for (int64_t row = 0; row < gram_.rows; row += stripe_) {
      SPARSEFW_RETURN_IF_ERROR(AddStripe(rows, row, std::min(stripe_, gram_.rows - row)));
    }
    SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> sums, context_.Download(sums_));
    return scale_.Unscaled(std::accumulate(sums.begin(), sums.end(), 0.0));
  }

 private:
  absl::Status Allocate() {
    const cudaStream_t stream = context_.stream();
    const int64_t cols = weights_.cols;
    if (mask_ != nullptr) {
      SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(*mask_, stream));
    } else {
      SPARSEFW_ASSIGN_OR_RETURN(other_weights_,
                                DeviceBuffer<float>::Create(weights_.rows * cols, stream));
      SPARSEFW_RETURN_IF_ERROR(
          StagedUpload(other_->view(), other_weights_.data(), stream, context_.stop()));
    }
    SPARSEFW_ASSIGN_OR_RETURN(gram_stripe_, DeviceBuffer<double>::Create(stripe_ * cols, stream));
    SPARSEFW_ASSIGN_OR_RETURN(columns_,
                              DeviceBuffer<double>::Create(panel_rows_ * stripe_, stream));
    SPARSEFW_ASSIGN_OR_RETURN(product_, DeviceBuffer<double>::Create(panel_rows_ * cols, stream));
    SPARSEFW_ASSIGN_OR_RETURN(sums_, DeviceBuffer<double>::Zeroed(weights_.rows, stream));
    return absl::OkStatus();
  }

  // sums += <D, D[:, stripe] G[stripe, :]>, row by row.
  absl::Status AddStripe(const RawRows& rows, int64_t first, int64_t count) {
    const int64_t cols = weights_.cols;
    const size_t before = static_cast<size_t>(first * cols) * SizeOf(gram_.dtype);
    const RawMatrix stripe = {static_cast<const unsigned char*>(gram_.data) + before, gram_.dtype,
                              count, cols};
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchConvert(stripe, scale_.gram_factor(), gram_stripe_.data(), cols, context_.stream()));
    for (int64_t row = 0; row < weights_.rows; row += panel_rows_) {
      const RawRows panel = rows.Rows(row, std::min(panel_rows_, weights_.rows - row));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          LaunchRawColumns(panel, first, count, stripe_, columns_.data(), context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(context_.Multiply({.rows = panel.weights.rows,
                                                  .cols = cols,
                                                  .depth = count,
                                                  .a = {columns_.data(), stripe_},
                                                  .b = {gram_stripe_.data(), cols},
                                                  .c = product_.data(),
                                                  .c_stride = cols,
                                                  .input = CUDA_R_64F}));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          LaunchAddRowDots(panel, product_.data(), sums_.data() + row, context_.stream()));
    }
    return context_.Await();
  }

  const RawMatrix weights_;
  const RawMatrix gram_;
  const Mask* const mask_;
  const Matrix<float>* const other_;
  const Scale scale_;
  const ExecutionContext& context_;
  const int64_t stripe_;
  const int64_t panel_rows_;
  DeviceBuffer<BitWord> kept_;
  DeviceBuffer<float> other_weights_;
  DeviceBuffer<double> gram_stripe_;  // [stripe_, cols]
  DeviceBuffer<double> columns_;      // [panel_rows_, stripe_]: of D
  DeviceBuffer<double> product_;      // [panel_rows_, cols]
  DeviceBuffer<double> sums_;         // [rows]
};

}  // namespace

// As LossSum::Allocate has it.
int64_t LossBytes(int64_t rows, int64_t cols, bool of_weights) {
  const int64_t panel = std::min(kPanelRows, rows);
  const int64_t stripe = std::min(kStripeRows, cols);
  const int64_t compared = of_weights ? 4 * rows * cols : rows * StrideOf(cols) / 8;
  return compared + 8 * stripe * cols + 8 * panel * (stripe + cols) + 8 * rows;
}

absl::StatusOr<double> LossChange(const RawMatrix& weights, const RawMatrix& gram, const Mask& from,
                                  const Mask& to, const Scale& scale,
                                  const ExecutionContext& context) {
  const cudaStream_t stream = context.stream();
  SPARSEFW_ASSIGN_OR_RETURN(const auto before, UploadMask(from, stream));
  SPARSEFW_ASSIGN_OR_RETURN(const auto after, UploadMask(to, stream));
  SPARSEFW_ASSIGN_OR_RETURN(auto sums, DeviceBuffer<double>::Create(weights.rows, stream));
  const double factor = scale.weights_factor();
  RawRows rows = {weights, weights.cols, before.data(), nullptr, factor};
  RawRows changed = rows;
  changed.kept = after.data();
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 34) / (weights.cols * weights.cols));
  for (int64_t row = 0; row < weights.rows; row += step) {
    const int64_t count = std::min(step, weights.rows - row);
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchLossChanges(rows.Rows(row, count), changed.Rows(row, count),
                                                    gram, sums.data() + row, stream));
    SPARSEFW_RETURN_IF_ERROR(context.Await());
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<double> changes, context.Download(sums));
  // The products took G as it is.
  return scale.Unscaled(std::accumulate(changes.begin(), changes.end(), 0.0) * scale.gram_factor());
}

int64_t LossChangeBytes(int64_t rows, int64_t cols) {
  return 2 * rows * StrideOf(cols) / 8 + 8 * rows;
}

absl::StatusOr<bool> IsSymmetric(const RawMatrix& gram, const ExecutionContext& context) {
  const cudaStream_t stream = context.stream();
  SPARSEFW_ASSIGN_OR_RETURN(auto count, DeviceBuffer<unsigned long long>::Create(1, stream));
  const auto look = [&] { return LaunchCountAsymmetric(gram, count.data(), stream); };
  SPARSEFW_ASSIGN_OR_RETURN(const auto entries, context.Counted(count.data(), look));
  return entries == 0;
}

absl::StatusOr<double> MaskLoss(const RawMatrix& weights, const RawMatrix& gram, const Mask& mask,
                                const Scale& scale, const ExecutionContext& context) {
  return LossSum(weights, gram, &mask, nullptr, scale, context).Run();
}

absl::StatusOr<double> LossOfWeights(const RawMatrix& weights, const RawMatrix& gram,
                                     const Matrix<float>& kept, const Scale& scale,
                                     const ExecutionContext& context) {
  return LossSum(weights, gram, nullptr, &kept, scale, context).Run();
}

}  // namespace sparsefw::cuda
