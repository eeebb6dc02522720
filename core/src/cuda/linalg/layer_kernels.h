// Launches that bring matrices into the form that the engine computes with.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// How many blocks LaunchMaxAbs takes for a matrix.
int64_t MaxAbsBlocks(const RawMatrix& matrix);

// partial[MaxAbsBlocks(matrix)]: the largest absolute values of the blocks.
CudaError LaunchMaxAbs(const RawMatrix& matrix, double* partial, cudaStream_t stream);

// out [rows, stride] = matrix * factor; the padding is left alone.
template <typename Real>
CudaError LaunchConvert(const RawMatrix& matrix, double factor, Real* out, int64_t stride,
                        cudaStream_t stream);

// out [cols, stride] = (G + G^T)/2 * factor, F32 or F64 given.
template <typename Real>
CudaError LaunchSymmetrise(const RawMatrix& gram, double factor, Real* out, int64_t stride,
                           cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
