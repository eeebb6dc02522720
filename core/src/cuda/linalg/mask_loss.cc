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

constexpr int64_t kStripeRows = 512;                // rows of G at a time
constexpr int64_t kPanelRows = 1024;                // rows of D G at a time
constexpr int64_t kPartBytes = int64_t{512} << 20;  // of W, and of other weights

using Bytes = DeviceBuffer<unsigned char>;

int64_t RowBytes(ConstMatrixView matrix) {
  return matrix.cols() * static_cast<int64_t>(SizeOf(matrix.dtype()));
}

// Rows of W, and where other weights are compared with it of those, that are on
// the device at once.
int64_t PartRows(int64_t rows, int64_t cols, DType weights, bool other) {
  const auto entry = static_cast<int64_t>(SizeOf(weights) + (other ? sizeof(float) : 0));
  return std::clamp<int64_t>(kPartBytes / (cols * entry), 1, rows);
}

// As LossSum::Allocate has it.
int64_t LossSumBytes(int64_t rows, int64_t cols, DType weights, bool other) {
  const int64_t part = PartRows(rows, cols, weights, other);
  const int64_t panel = std::min(kPanelRows, part);
  const int64_t stripe = std::min(kStripeRows, cols);
  const int64_t compared = other ? 4 * part * cols : rows * StrideOf(cols) / 8;
  return static_cast<int64_t>(SizeOf(weights)) * part * cols + compared + 8 * stripe * cols +
         8 * panel * (stripe + cols) + 8 * rows;
}

class LossSum {
 public:
  // Either `mask` or `other` is null.
  LossSum(ConstMatrixView weights, const RawMatrix& gram, const Mask* mask,
          const Matrix<float>* other, const Scale& scale, const ExecutionContext& context)
      : weights_(weights),
        gram_(gram),
        mask_(mask),
        other_(other),
        scale_(scale),
        context_(context),
        stripe_(std::min(kStripeRows, gram.rows)) {
    part_rows_ = PartRows(weights.rows(), weights.cols(), weights.dtype(), other != nullptr);
    panel_rows_ = std::min(kPanelRows, part_rows_);
  }

  absl::StatusOr<double> Run() {
    SPARSEFW_RETURN_IF_ERROR(Allocate());
    for (int64_t first = 0; first < weights_.rows(); first += part_rows_) {
      SPARSEFW_RETURN_IF_ERROR(AddPart(first, std::min(part_rows_, weights_.rows() - first)));
    }
    std::vector<double> sums(static_cast<size_t>(weights_.rows()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(sums.data(), sums_.data(),
                                                  sums.size() * sizeof(double),
                                                  cudaMemcpyDeviceToHost, context_.stream()));
    SPARSEFW_RETURN_IF_ERROR(context_.Await());
    return scale_.Unscaled(std::accumulate(sums.begin(), sums.end(), 0.0));
  }

 private:
  absl::Status Allocate() {
    const cudaStream_t stream = context_.stream();
    const int64_t cols = weights_.cols();
    SPARSEFW_ASSIGN_OR_RETURN(part_, Bytes::Create(part_rows_ * RowBytes(weights_), stream));
    if (mask_ != nullptr) {
      SPARSEFW_ASSIGN_OR_RETURN(kept_, UploadMask(*mask_, stream));
    } else {
      SPARSEFW_ASSIGN_OR_RETURN(part_of_other_,
                                DeviceBuffer<float>::Create(part_rows_ * cols, stream));
    }
    SPARSEFW_ASSIGN_OR_RETURN(gram_stripe_, DeviceBuffer<double>::Create(stripe_ * cols, stream));
    SPARSEFW_ASSIGN_OR_RETURN(columns_,
                              DeviceBuffer<double>::Create(panel_rows_ * stripe_, stream));
    SPARSEFW_ASSIGN_OR_RETURN(product_, DeviceBuffer<double>::Create(panel_rows_ * cols, stream));
    SPARSEFW_ASSIGN_OR_RETURN(sums_, DeviceBuffer<double>::Zeroed(weights_.rows(), stream));
    return absl::OkStatus();
  }

  // sums_ of rows [first, first + count).
  absl::Status AddPart(int64_t first, int64_t count) {
    SPARSEFW_RETURN_IF_ERROR(StagedUpload(weights_.Rows(first, count), part_.data(),
                                          context_.stream(), context_.stop()));
    if (other_ != nullptr) {
      SPARSEFW_RETURN_IF_ERROR(StagedUpload(other_->view().Rows(first, count),
                                            part_of_other_.data(), context_.stream(),
                                            context_.stop()));
    }
    const RawRows part = {.weights = {part_.data(), weights_.dtype(), count, weights_.cols()},
                          .kept = mask_ == nullptr
                                      ? nullptr
                                      : kept_.data() + first * (StrideOf(weights_.cols()) / 32),
                          .other = part_of_other_.data(),
                          .factor = scale_.weights_factor()};
    for (int64_t row = 0; row < gram_.rows; row += stripe_) {
      SPARSEFW_RETURN_IF_ERROR(
          AddStripe(part, row, std::min(stripe_, gram_.rows - row), sums_.data() + first));
    }
    return absl::OkStatus();
  }

  // sums += <D, D[:, stripe] G[stripe, :]>, row by row.
  absl::Status AddStripe(const RawRows& part, int64_t first, int64_t count, double* sums) {
    const int64_t cols = weights_.cols();
    const size_t before = static_cast<size_t>(first * cols) * SizeOf(gram_.dtype);
    const RawMatrix stripe = {static_cast<const unsigned char*>(gram_.data) + before, gram_.dtype,
                              count, cols};
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchConvert(stripe, scale_.gram_factor(), gram_stripe_.data(), cols, context_.stream()));
    for (int64_t row = 0; row < part.weights.rows; row += panel_rows_) {
      const RawRows panel = part.Rows(row, std::min(panel_rows_, part.weights.rows - row));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          LaunchRawColumns(panel, first, count, stripe_, columns_.data(), context_.stream()));
      SPARSEFW_RETURN_IF_ERROR(context_.product().Multiply({.rows = panel.weights.rows,
                                                            .cols = cols,
                                                            .depth = count,
                                                            .a = columns_.data(),
                                                            .a_stride = stripe_,
                                                            .b = gram_stripe_.data(),
                                                            .b_stride = cols,
                                                            .c = product_.data(),
                                                            .c_stride = cols,
                                                            .input = CUDA_R_64F,
                                                            .output = CUDA_R_64F,
                                                            .compute = CUBLAS_COMPUTE_64F}));
      SPARSEFW_CUDA_RETURN_IF_ERROR(
          LaunchAddRowDots(panel, product_.data(), sums + row, context_.stream()));
    }
    return context_.Await();
  }

  const ConstMatrixView weights_;
  const RawMatrix gram_;
  const Mask* const mask_;
  const Matrix<float>* const other_;
  const Scale scale_;
  const ExecutionContext& context_;
  const int64_t stripe_;
  int64_t part_rows_;
  int64_t panel_rows_;
  Bytes part_;                         // rows of W
  DeviceBuffer<BitWord> kept_;         // of all rows
  DeviceBuffer<float> part_of_other_;  // rows of the other weights
  DeviceBuffer<double> gram_stripe_;   // [stripe_, cols]
  DeviceBuffer<double> columns_;       // [panel_rows_, stripe_]: of D
  DeviceBuffer<double> product_;       // [panel_rows_, cols]
  DeviceBuffer<double> sums_;          // [rows]
};

}  // namespace

int64_t MaskLossBytes(int64_t rows, int64_t cols, DType weights) {
  return LossSumBytes(rows, cols, weights, false);
}

int64_t LossOfWeightsBytes(int64_t rows, int64_t cols, DType weights) {
  return LossSumBytes(rows, cols, weights, true);
}

absl::StatusOr<double> MaskLoss(ConstMatrixView weights, const RawMatrix& gram, const Mask& mask,
                                const Scale& scale, const ExecutionContext& context) {
  return LossSum(weights, gram, &mask, nullptr, scale, context).Run();
}

absl::StatusOr<double> LossOfWeights(ConstMatrixView weights, const RawMatrix& gram,
                                     const Matrix<float>& kept, const Scale& scale,
                                     const ExecutionContext& context) {
  return LossSum(weights, gram, nullptr, &kept, scale, context).Run();
}

}  // namespace sparsefw::cuda
