#include "core/src/cuda/memory/device_layer.h"

#include <algorithm>
#include <vector>

#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::StatusOr<GivenMatrix> GivenMatrix::Create(RawMatrix like, cudaStream_t stream) {
  const int64_t bytes = like.rows * like.cols * static_cast<int64_t>(SizeOf(like.dtype));
  GivenMatrix result;
  SPARSEFW_ASSIGN_OR_RETURN(result.bytes_, DeviceBuffer<unsigned char>::Create(bytes, stream));
  result.view_ = like;
  result.view_.data = result.bytes_.data();
  return result;
}

absl::StatusOr<GivenMatrix> GivenMatrix::Upload(ConstMatrixView matrix, cudaStream_t stream,
                                                const StopSignal* stop, double shrinkage) {
  SPARSEFW_ASSIGN_OR_RETURN(
      GivenMatrix result, Create({nullptr, matrix.dtype(), matrix.rows(), matrix.cols()}, stream));
  SPARSEFW_RETURN_IF_ERROR(StagedUpload(matrix, result.bytes_.data(), stream, stop));
  if (shrinkage > 0) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchShrink(result.view_, shrinkage, result.bytes_.data(), stream));
  }
  SPARSEFW_ASSIGN_OR_RETURN(result.max_abs_, MaxAbs(result.view_, stream));
  return result;
}

absl::StatusOr<GivenMatrix> GivenMatrix::Shrunk(const RawMatrix& gram, double shrinkage,
                                                cudaStream_t stream) {
  SPARSEFW_ASSIGN_OR_RETURN(GivenMatrix result, Create(gram, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchShrink(gram, shrinkage, result.bytes_.data(), stream));
  SPARSEFW_ASSIGN_OR_RETURN(result.max_abs_, MaxAbs(result.view_, stream));
  return result;
}

absl::StatusOr<double> MaxAbs(const RawMatrix& matrix, cudaStream_t stream) {
  const int64_t blocks = MaxAbsBlocks(matrix);
  SPARSEFW_ASSIGN_OR_RETURN(auto partial, DeviceBuffer<double>::Create(blocks, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchMaxAbs(matrix, partial.data(), stream));
  std::vector<double> largest(static_cast<size_t>(blocks));
  SPARSEFW_RETURN_IF_ERROR(
      CopyAndWait(largest.data(), partial.data(), blocks, cudaMemcpyDeviceToHost, stream));
  return *std::max_element(largest.begin(), largest.end());
}

template <typename Real>
absl::StatusOr<DeviceLayer<Real>> LoadLayer(const RawMatrix& weights, const RawMatrix& gram,
                                            const Scale& scale, cudaStream_t stream) {
  DeviceLayer<Real> layer;
  layer.rows = weights.rows;
  layer.cols = weights.cols;
  layer.stride = StrideOf(layer.cols);
  SPARSEFW_ASSIGN_OR_RETURN(layer.weights, DeviceBuffer<Real>::Zeroed(layer.size(), stream));
  SPARSEFW_ASSIGN_OR_RETURN(layer.gram,
                            DeviceBuffer<Real>::Zeroed(layer.cols * layer.stride, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      LaunchConvert(weights, scale.weights_factor(), layer.weights.data(), layer.stride, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchConvert</*kSymmetric=*/true>(
      gram, scale.gram_factor(), layer.gram.data(), layer.stride, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return layer;
}

// A column whose rows are one entry longer than those of the gram.
template <typename Real>
absl::StatusOr<std::vector<Real>> DownloadDiagonal(const DeviceLayer<Real>& layer,
                                                   cudaStream_t stream) {
  const size_t pitch = static_cast<size_t>(layer.stride + 1) * sizeof(Real);
  std::vector<Real> diagonal(static_cast<size_t>(layer.cols));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(diagonal.data(), sizeof(Real), layer.gram.data(),
                                                  pitch, sizeof(Real), diagonal.size(),
                                                  cudaMemcpyDeviceToHost, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return diagonal;
}

template <typename Real>
absl::Status UploadDiagonal(const std::vector<Real>& diagonal, DeviceLayer<Real>& layer,
                            cudaStream_t stream) {
  const size_t pitch = static_cast<size_t>(layer.stride + 1) * sizeof(Real);
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(layer.gram.data(), pitch, diagonal.data(),
                                                  sizeof(Real), sizeof(Real), diagonal.size(),
                                                  cudaMemcpyHostToDevice, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

#define SPARSEFW_INSTANTIATE(Real)                                                         \
  template absl::StatusOr<DeviceLayer<Real>> LoadLayer(const RawMatrix&, const RawMatrix&, \
                                                       const Scale&, cudaStream_t);        \
  template absl::StatusOr<std::vector<Real>> DownloadDiagonal(const DeviceLayer<Real>&,    \
                                                              cudaStream_t);               \
  template absl::Status UploadDiagonal(const std::vector<Real>&, DeviceLayer<Real>&, cudaStream_t)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

absl::StatusOr<DeviceBuffer<BitWord>> UploadMask(const Mask& mask, cudaStream_t stream) {
  const int64_t words = StrideOf(mask.cols()) / 32;
  SPARSEFW_ASSIGN_OR_RETURN(auto bits, DeviceBuffer<BitWord>::Zeroed(mask.rows() * words, stream));
  const auto row_bytes = static_cast<size_t>(mask.row_bytes());
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(
      bits.data(), static_cast<size_t>(words) * sizeof(BitWord), mask.row(0), row_bytes, row_bytes,
      static_cast<size_t>(mask.rows()), cudaMemcpyHostToDevice, stream));
  return bits;
}

absl::StatusOr<Mask> DownloadMask(const BitWord* bits, int64_t rows, int64_t cols,
                                  cudaStream_t stream) {
  Mask mask(rows, cols);
  const size_t words = static_cast<size_t>(StrideOf(cols) / 32);
  const auto row_bytes = static_cast<size_t>(mask.row_bytes());
  SPARSEFW_CUDA_RETURN_IF_ERROR(
      cudaMemcpy2DAsync(mask.row(0), row_bytes, bits, words * sizeof(BitWord), row_bytes,
                        static_cast<size_t>(rows), cudaMemcpyDeviceToHost, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return mask;
}

}  // namespace sparsefw::cuda
