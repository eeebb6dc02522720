// Launches that bring matrices into the forms that the engine computes with: padded, scaled and
// symmetric ones, and float16 ones of which float32 ones are sums (half_split.h).
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/half_split.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// How many blocks LaunchMaxAbs takes for a matrix.
int64_t MaxAbsBlocks(const RawMatrix& matrix);

// partial[MaxAbsBlocks(matrix)]: the largest absolute values of the blocks.
CudaError LaunchMaxAbs(const RawMatrix& matrix, double* partial, cudaStream_t stream);

// out [rows, stride] = matrix * factor, or (G + G^T)/2 * factor where kSymmetric, F32 or F64 given;
// the padding is left alone.
template <bool kSymmetric = false, typename Real>
CudaError LaunchConvert(const RawMatrix& matrix, double factor, Real* out, int64_t stride,
                        cudaStream_t stream);

// out [cols, cols], of gram's dtype (F32, F64): (1 - shrinkage) gram, each entry a product in
// float64 that is rounded once, with gram's own diagonal. `out` may be gram.data.
CudaError LaunchShrink(const RawMatrix& gram, double shrinkage, void* out, cudaStream_t stream);

// *entries is added to: those above the diagonal of gram that differ from their mirror image.
CudaError LaunchCountAsymmetric(const RawMatrix& gram, unsigned long long* entries,
                                cudaStream_t stream);

// columns [2 * stride]: s_j of a G [cols, stride] whose largest entry has that exponent (ilogb) at
// most, then 1 / s_j; the padding's are finite.
CudaError LaunchBalance(const float* gram, int64_t cols, int64_t stride, int largest_exponent,
                        float* columns, cudaStream_t stream);

// values [count], rows of `stride`, times the factors of `out`.
CudaError LaunchSplit(const float* values, int64_t count, int64_t stride,
                      const LeftOperand<float>& out, cudaStream_t stream);

// *misfits is added to: values that are no float16 once they are multiplied by the factors of `as`.
CudaError LaunchCountMisfits(const float* values, int64_t count, int64_t stride,
                             const LeftOperand<float>& as, int* misfits, cudaStream_t stream);

// Rows of `values` [rows, stride], by out.columns and each times a power of two that brings its
// largest value to 2^kHalfExponent; row r of the product with a G that was multiplied by
// gram_factor is then to be multiplied by scale[r].
CudaError LaunchSplitRows(const float* values, int64_t rows, int64_t stride, float gram_factor,
                          const LeftOperand<float>& out, float* scale, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_KERNELS_H_
