// A matrix on the device as it was given.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_

#include <cstdint>

#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// Dense, its rows one after the other, without padding but in RawRows. A view; no ownership.
struct RawMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;  // F32, F16, BF16, F64
  int64_t rows = 0;
  int64_t cols = 0;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_RAW_MATRIX_H_
