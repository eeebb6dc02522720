// Device code shared by both forms of the incremental vertex update.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLES_CUH_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLES_CUH_

#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/linalg/reduce.cuh"

namespace sparsefw::cuda {

// The change of D(V) where a weight enters or leaves the vertex.
template <typename Real>
__device__ Real DeltaOf(const IterateView<Real>& it, int64_t row, int64_t col) {
  const Real weight = it.weights[row * it.stride + col];
  return BitOf(it.vertex + row * it.words(), col) ? -weight : weight;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLES_CUH_
