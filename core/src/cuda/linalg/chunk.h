// Entries of a row that a thread loads by one access of 16 bytes.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_CHUNK_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_CHUNK_H_

#include <cuda_runtime.h>

namespace sparsefw::cuda {

template <typename Real>
inline constexpr int kChunk = 16 / static_cast<int>(sizeof(Real));

template <typename Real>
struct alignas(16) Chunk {
  Real v[kChunk<Real>];
};

// `from` is a multiple of kChunk entries from the beginning of a padded row.
template <typename Real>
__device__ Chunk<Real> LoadChunk(const Real* from) {
  return *reinterpret_cast<const Chunk<Real>*>(from);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_CHUNK_H_
