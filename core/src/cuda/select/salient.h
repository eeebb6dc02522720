// The saliency of W on the device, as sparsefw/saliency.h defines it, and selection by it.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SALIENT_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SALIENT_H_

#include <cuda_runtime.h>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/select/select_scores.h"

namespace sparsefw::cuda {

// W and SaliencySource::Terms. Views of device memory.
struct SalientWeights {
  RawMatrix weights;               // F32, F16, BF16
  const double* factor = nullptr;  // [cols]
  const double* row = nullptr;     // [rows], with column; null but for RIA
  const double* column = nullptr;  // [cols]
};

// scores [rows, StrideOf(cols)] = the saliency, by the operations of SaliencySource and so with its
// bits. The padding stays as it is.
CudaError LaunchSaliency(const SalientWeights& salient, float* scores, cudaStream_t stream);

// As LaunchSelectLargest, by the saliency, which is computed where it is read.
// among: [rows, StrideOf(cols) / 32], only these are selected; null: all
CudaError LaunchSelectSalient(const SelectionSpace& space, const SalientWeights& salient,
                              const BitWord* among, const Groups& groups, BitWord* bits,
                              cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SALIENT_H_
