// Marks functions that CUDA kernels and host code share.
#ifndef SPARSEFW_CORE_SRC_BASE_HOST_DEVICE_H_
#define SPARSEFW_CORE_SRC_BASE_HOST_DEVICE_H_

#include <cstdint>
#include <cstring>

// g++ compiles the same headers for tests and knows no such attributes.
#if defined(__CUDACC__)
#define SPARSEFW_HOST_DEVICE __host__ __device__
#else
#define SPARSEFW_HOST_DEVICE
#endif
// Stands before a loop whose indices must be constants in a kernel.
#if defined(__CUDA_ARCH__)
#define SPARSEFW_UNROLL _Pragma("unroll")
#else
#define SPARSEFW_UNROLL
#endif

namespace sparsefw {

SPARSEFW_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

SPARSEFW_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_BASE_HOST_DEVICE_H_
