// Atomics and a fence. Blocks of one launch follow each other, but launches on
// other threads of the host may touch the same words: hence true atomics.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

#include <atomic>

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

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
