// What CUDA adds to the language that kernels are written in.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_KERNEL_LANGUAGE_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_KERNEL_LANGUAGE_H_

#include <atomic>
#include <bit>
#include <cstdint>
#include <source_location>
#include <type_traits>

// CUDA's words for where code runs and where variables live.

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// A block runs on one thread of the host, blocks follow each other there, so
// what a block shares is what its thread has to itself. constinit: no guard, and
// an error for a constructor, which CUDA does not allow either.
#define __shared__ constinit thread_local

// dim3 and the short vectors in use, with CUDA's alignment.

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

// Device functions that need no other thread: bits, min and max.

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

// The same bits as another type.
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

// CUDA's ::min and ::max, of int alone: other types would narrow to it.
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
template <typename A, typename B>
void min(A a, B b) = delete;
template <typename A, typename B>
void max(A a, B b) = delete;

// Atomics and a fence. Blocks of one launch follow each other, but launches on
// other threads of the host may touch the same words: hence true atomics.

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

inline int atomicAdd(int* address, int value) {
  return std::atomic_ref<int>(*address).fetch_add(value);
}
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return std::atomic_ref<unsigned>(*address).fetch_add(value);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return std::atomic_ref<unsigned long long>(*address).fetch_add(value);
}
inline unsigned atomicOr(unsigned* address, unsigned value) {
  return std::atomic_ref<unsigned>(*address).fetch_or(value);
}
inline int atomicMax(int* address, int value) {
  std::atomic_ref<int> word(*address);
  int old = word.load();
  while (old < value && !word.compare_exchange_weak(old, value)) {
  }
  return old;
}

// Barriers and warp operations. Every thread says from where it called, for
// the messages and because a block's threads may not meet at two barriers.

namespace cuda_on_host {

using Place = std::source_location;

// Waits for every thread of the block that has not returned.
void SyncBlock(const Place& place);

enum class WarpOp { kVote, kShuffle };

// Waits for every lane of the mask that has not returned. The result:
//   kVote     a bit for each lane whose value is not 0
//   kShuffle  the value of source_lane, one of the warp's; bits all 1 when that lane takes no part
uint64_t SyncWarp(WarpOp op, unsigned mask, uint64_t value, int source_lane, const Place& place);

// The calling thread's lane.
int Lane();

template <typename T>
T Shuffle(unsigned mask, T value, int source_lane, const Place& place) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(
      SyncWarp(WarpOp::kShuffle, mask, std::bit_cast<Bits>(value), source_lane, place)));
}

}  // namespace cuda_on_host

inline void __syncthreads(const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  cuda_on_host::SyncBlock(place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return static_cast<unsigned>(
      cuda_on_host::SyncWarp(cuda_on_host::WarpOp::kVote, mask, predicate != 0 ? 1 : 0, 0, place));
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source,
              const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return cuda_on_host::Shuffle(mask, value, source & (warpSize - 1), place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                  const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return cuda_on_host::Shuffle(mask, value, cuda_on_host::Lane() ^ lane_mask, place);
}

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_KERNEL_LANGUAGE_H_
