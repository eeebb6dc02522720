// Launches that bring matrices into the form that the engine computes with.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "sparsefw/dtype.h"

namespace sparsefw::cuda {

// A dense matrix on the device as it was given.
struct RawMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // F32, F16, BF16, F64
  int64_t rows = 0;
  int64_t cols = 0;
};

// How many blocks LaunchMaxAbs takes for a matrix.
int64_t MaxAbsBlocks(const RawMatrix& matrix);

// partial[MaxAbsBlocks(matrix)]: the largest absolute values of the blocks.
absl::Status LaunchMaxAbs(const RawMatrix& matrix, double* partial, cudaStream_t stream);

// out [rows, stride] = matrix * factor; the padding is left alone.
template <typename Real>
absl::Status LaunchConvert(const RawMatrix& matrix, double factor, Real* out, int64_t stride,
                           cudaStream_t stream);

// out [cols, stride] = (G + G^T)/2 * factor, F32 or F64 given.
template <typename Real>
absl::Status LaunchSymmetrise(const RawMatrix& gram, double factor, Real* out, int64_t stride,
                              cudaStream_t stream);

// to [count] = from, exactly.
absl::Status LaunchWiden(const float* from, int64_t count, double* to, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
