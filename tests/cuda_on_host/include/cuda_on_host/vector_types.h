// dim3 and the short vectors in use, with CUDA's alignment.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_

struct alignas(16) double2 {
  double x, y;
};
inline double2 make_double2(double x, double y) { return double2{x, y}; }

struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  // Implicit as CUDA's: a number is a shape.
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1,  // NOLINT(google-explicit-constructor)
                 unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};

// Where a kernel's code is. Set by block_runner.cc whenever it switches threads.
inline constinit thread_local uint3 threadIdx = {};
inline constinit thread_local uint3 blockIdx = {};
inline constinit thread_local dim3 blockDim = {};
inline constinit thread_local dim3 gridDim = {};
inline constexpr int warpSize = 32;

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_VECTOR_TYPES_H_
