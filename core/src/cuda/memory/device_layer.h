// W and G on the device in the engine's own form: padded, scaled, symmetric.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_LAYER_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_LAYER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cuda {

// Real, float or double, is what the iteration is computed in.
template <typename Real>
struct DeviceLayer {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  int largest_exponent = Scale::kTargetExponent;  // of the largest entries of W and of G
  DeviceBuffer<Real> weights;                     // [rows, stride], times 2^weights_exponent
  DeviceBuffer<Real> gram;  // [cols, stride], (G + G^T)/2 times 2^gram_exponent

  int64_t words() const { return stride / 32; }
  int64_t size() const { return rows * stride; }
};

template <typename Real>
int64_t LayerBytes(int64_t rows, int64_t cols) {
  return int64_t{sizeof(Real)} * (rows + cols) * StrideOf(cols);
}

// The largest absolute value. Waits for the stream.
// Transient memory on the device: kMaxAbsBytes at most.
absl::StatusOr<double> MaxAbs(const RawMatrix& matrix, cudaStream_t stream);
inline constexpr int64_t kMaxAbsBytes = 8 * 512;

// A matrix of the host on the device, as it was given: rows without gaps. With a shrinkage, that of
// EngineProblem, what it makes of such a gram. The functions wait for the stream.
// Transient memory on the device: kMaxAbsBytes.
// Errors: ResourceExhausted (OUT_OF_MEMORY), what went wrong on the device; of uploads Cancelled
class GivenMatrix {
 public:
  // Copies from pageable host memory.
  static absl::StatusOr<GivenMatrix> Upload(ConstMatrixView matrix, cudaStream_t stream,
                                            const StopSignal* stop, double shrinkage = 0);
  // From a gram on the device.
  static absl::StatusOr<GivenMatrix> Shrunk(const RawMatrix& gram, double shrinkage,
                                            cudaStream_t stream);

  const RawMatrix& view() const { return view_; }
  double max_abs() const { return max_abs_; }

 private:
  // With the shape and dtype of `like`; uninitialised.
  static absl::StatusOr<GivenMatrix> Create(RawMatrix like, cudaStream_t stream);

  DeviceBuffer<unsigned char> bytes_;
  RawMatrix view_;
  double max_abs_ = 0;
};

// Waits for the stream.
template <typename Real>
absl::StatusOr<DeviceLayer<Real>> LoadLayer(const RawMatrix& weights, const RawMatrix& gram,
                                            const Scale& scale, cudaStream_t stream);

// The diagonal of the layer's gram. Both wait for the stream.
template <typename Real>
absl::StatusOr<std::vector<Real>> DownloadDiagonal(const DeviceLayer<Real>& layer,
                                                   cudaStream_t stream);
template <typename Real>
absl::Status UploadDiagonal(const std::vector<Real>& diagonal, DeviceLayer<Real>& layer,
                            cudaStream_t stream);

// [rows, stride / 32] words.
absl::StatusOr<DeviceBuffer<BitWord>> UploadMask(const Mask& mask, cudaStream_t stream);
// Waits for the stream.
absl::StatusOr<Mask> DownloadMask(const BitWord* bits, int64_t rows, int64_t cols,
                                  cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_LAYER_H_
