// D = W.(1 - M), or W minus other weights, from W as it is given or as a layer has it.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_ROWS_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// Rows of W on the device and what is taken away from them, either `kept`,
// which keeps W's own weights, or `other`. Views; no ownership.
struct RawRows {
  RawMatrix weights;              // but its rows are stride apart
  int64_t stride = 0;             // of the weights, of `other` and of products
  const BitWord* kept = nullptr;  // [rows, StrideOf(cols) / 32]
  const float* other = nullptr;   // [rows, stride]
  double factor = 1;              // of the weights, an exact power of two
  double other_factor = 1;        // of `other`, an exact power of two or 0

  // The same from row `first` on.
  RawRows Rows(int64_t first, int64_t count) const;
};

// out [rows, depth] = columns [first, first + count) of D.
CudaError LaunchRawColumns(const RawRows& rows, int64_t first, int64_t count, int64_t depth,
                           double* out, cudaStream_t stream);

// sums[row] += <D, product> of the row, product [rows, stride].
CudaError LaunchAddRowDots(const RawRows& rows, const double* product, double* sums,
                           cudaStream_t stream);

// sums[row] = <D' - D, (D' + D) G> of the row, in float64: D of `from`, D' of `to`, which differ in
// what they keep; gram [cols, cols] F32 or F64.
CudaError LaunchLossChanges(const RawRows& from, const RawRows& to, const RawMatrix& gram,
                            double* sums, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_ROWS_H_
