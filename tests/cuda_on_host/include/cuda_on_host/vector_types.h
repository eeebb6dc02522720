// dim3 and the short vectors, with CUDA's alignment.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_

#define CUDA_ON_HOST_VECTOR2(type, element, alignment) \
  struct alignas(alignment) type {                     \
    element x, y;                                      \
  };                                                   \
  inline type make_##type(element x, element y) { return type{x, y}; }

#define CUDA_ON_HOST_VECTOR4(type, element, alignment) \
  struct alignas(alignment) type {                     \
    element x, y, z, w;                                \
  };                                                   \
  inline type make_##type(element x, element y, element z, element w) { return type{x, y, z, w}; }

CUDA_ON_HOST_VECTOR2(float2, float, 8)
CUDA_ON_HOST_VECTOR2(double2, double, 16)
CUDA_ON_HOST_VECTOR2(int2, int, 8)
CUDA_ON_HOST_VECTOR2(uint2, unsigned, 8)
CUDA_ON_HOST_VECTOR2(longlong2, long long, 16)
CUDA_ON_HOST_VECTOR2(ulonglong2, unsigned long long, 16)
CUDA_ON_HOST_VECTOR2(short2, short, 4)
CUDA_ON_HOST_VECTOR2(ushort2, unsigned short, 4)
CUDA_ON_HOST_VECTOR4(float4, float, 16)
CUDA_ON_HOST_VECTOR4(int4, int, 16)
CUDA_ON_HOST_VECTOR4(uint4, unsigned, 16)
CUDA_ON_HOST_VECTOR4(short4, short, 8)
CUDA_ON_HOST_VECTOR4(ushort4, unsigned short, 8)
CUDA_ON_HOST_VECTOR4(uchar4, unsigned char, 4)

#undef CUDA_ON_HOST_VECTOR2
#undef CUDA_ON_HOST_VECTOR4

struct uint3 {
  unsigned x, y, z;
};
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }

struct dim3 {
  unsigned x, y, z;
  // Implicit as CUDA's: a number is a shape.
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1,  // NOLINT(google-explicit-constructor)
                 unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
  constexpr dim3(uint3 size)  // NOLINT(google-explicit-constructor)
      : x(size.x), y(size.y), z(size.z) {}
};

// Where a kernel's code is. Set by block_runner.cc whenever it switches threads.
inline constinit thread_local uint3 threadIdx = {};
inline constinit thread_local uint3 blockIdx = {};
inline constinit thread_local dim3 blockDim = {};
inline constinit thread_local dim3 gridDim = {};
inline constexpr int warpSize = 32;

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_
