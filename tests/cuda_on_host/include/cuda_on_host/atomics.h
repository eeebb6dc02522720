// Atomics and fences. Blocks of one launch follow each other, but launches on
// other threads of the host may touch the same words: hence true atomics.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

#include <atomic>

namespace cuda_on_host {

// Replaces *address by combine(*address) and returns what was there.
template <typename T, typename Combine>
T AtomicUpdate(T* address, const Combine& combine) {
  std::atomic_ref<T> word(*address);
  T old = word.load();
  while (!word.compare_exchange_weak(old, combine(old))) {
  }
  return old;
}

}  // namespace cuda_on_host

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }

#define CUDA_ON_HOST_ATOMIC_ADD(type)                                                  \
  inline type atomicAdd(type* address, type value) {                                   \
    return cuda_on_host::AtomicUpdate(address, [&](type old) { return old + value; }); \
  }                                                                                    \
  inline type atomicExch(type* address, type value) {                                  \
    return cuda_on_host::AtomicUpdate(address, [&](type) { return value; });           \
  }
#define CUDA_ON_HOST_INTEGER_ATOMICS(type)                                                  \
  CUDA_ON_HOST_ATOMIC_ADD(type)                                                             \
  inline type atomicAnd(type* address, type value) {                                        \
    return std::atomic_ref<type>(*address).fetch_and(value);                                \
  }                                                                                         \
  inline type atomicOr(type* address, type value) {                                         \
    return std::atomic_ref<type>(*address).fetch_or(value);                                 \
  }                                                                                         \
  inline type atomicXor(type* address, type value) {                                        \
    return std::atomic_ref<type>(*address).fetch_xor(value);                                \
  }                                                                                         \
  inline type atomicMax(type* address, type value) {                                        \
    return cuda_on_host::AtomicUpdate(address,                                              \
                                      [&](type old) { return old > value ? old : value; }); \
  }                                                                                         \
  inline type atomicMin(type* address, type value) {                                        \
    return cuda_on_host::AtomicUpdate(address,                                              \
                                      [&](type old) { return old < value ? old : value; }); \
  }                                                                                         \
  inline type atomicCAS(type* address, type expected, type value) {                         \
    std::atomic_ref<type>(*address).compare_exchange_strong(expected, value);               \
    return expected;                                                                        \
  }

// A signed overflow wraps on the device; UBSan would stop here, as it should.
CUDA_ON_HOST_INTEGER_ATOMICS(int)
CUDA_ON_HOST_INTEGER_ATOMICS(unsigned)
CUDA_ON_HOST_INTEGER_ATOMICS(unsigned long long)
CUDA_ON_HOST_ATOMIC_ADD(float)
CUDA_ON_HOST_ATOMIC_ADD(double)
#undef CUDA_ON_HOST_INTEGER_ATOMICS
#undef CUDA_ON_HOST_ATOMIC_ADD

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
