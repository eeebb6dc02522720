// Device functions that need no other thread: bits, arithmetic, min and max.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_INTRINSICS_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_INTRINSICS_H_

#include <bit>
#include <cmath>
#include <cstdint>

// Bits.
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= ((x >> bit) & 1u) << (31 - bit);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  const uint64_t low = __brev(static_cast<unsigned>(x));
  return (low << 32) | __brev(static_cast<unsigned>(x >> 32));
}

// The same bits as another type.
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Arithmetic with a stated rounding; never contracted.
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

// Loads and stores that only hint at caches.
template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
template <typename T>
T __ldcs(const T* pointer) {
  return *pointer;
}
template <typename T>
void __stcs(T* pointer, T value) {
  *pointer = value;
}

// CUDA's ::min and ::max. The floating ones return the other argument for a NaN.
#define CUDA_ON_HOST_MIN_MAX(type)                          \
  inline type min(type a, type b) { return a < b ? a : b; } \
  inline type max(type a, type b) { return a > b ? a : b; }
CUDA_ON_HOST_MIN_MAX(int)
CUDA_ON_HOST_MIN_MAX(unsigned)
CUDA_ON_HOST_MIN_MAX(long)
CUDA_ON_HOST_MIN_MAX(unsigned long)
CUDA_ON_HOST_MIN_MAX(long long)
CUDA_ON_HOST_MIN_MAX(unsigned long long)
#undef CUDA_ON_HOST_MIN_MAX
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_INTRINSICS_H_
