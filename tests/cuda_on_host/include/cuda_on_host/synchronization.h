// Barriers and warp operations. Every thread says from where it called, for
// the messages and because a block's threads may not meet at two barriers.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_SYNCHRONIZATION_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_SYNCHRONIZATION_H_

#include <bit>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "vector_types.h"

namespace cuda_on_host {

using Place = std::source_location;

struct BlockVote {
  int arrived = 0;  // threads
  int yes = 0;      // of these, how many said yes
};

// Waits for every thread of the block that has not returned.
BlockVote SyncBlock(bool yes, const Place& place);

enum class WarpOp { kSync, kVote, kShuffle, kAdd, kMin, kMax, kAnd, kOr, kXor };

// Waits for every lane of the mask that has not returned. The result:
//   kVote          a bit for each lane whose value is not 0
//   kShuffle       the value of source_lane; bits all 1 when that lane takes no part
//   kAdd ... kXor  of the values, as unsigned; 32 bits
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
  cuda_on_host::SyncBlock(false, place);
}
inline int __syncthreads_count(int predicate,
                               const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return cuda_on_host::SyncBlock(predicate != 0, place).yes;
}
inline int __syncthreads_or(int predicate,
                            const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return cuda_on_host::SyncBlock(predicate != 0, place).yes > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate,
                             const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  const cuda_on_host::BlockVote vote = cuda_on_host::SyncBlock(predicate != 0, place);
  return vote.yes == vote.arrived ? 1 : 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  cuda_on_host::SyncWarp(cuda_on_host::WarpOp::kSync, mask, 0, 0, place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return static_cast<unsigned>(
      cuda_on_host::SyncWarp(cuda_on_host::WarpOp::kVote, mask, predicate != 0 ? 1 : 0, 0, place));
}
inline int __any_sync(unsigned mask, int predicate,
                      const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return __ballot_sync(mask, predicate, place) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0, place) == 0 ? 1 : 0;
}

// Shuffles within segments of `width` lanes, a power of two; a lane that would
// read across its segment's end reads its own value.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  const int first = cuda_on_host::Lane() & ~(width - 1);
  return cuda_on_host::Shuffle(mask, value, first | (source & (width - 1)), place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  const int lane = cuda_on_host::Lane();
  const int source = lane - static_cast<int>(delta);
  return cuda_on_host::Shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  const int lane = cuda_on_host::Lane();
  const int source = lane + static_cast<int>(delta);
  return cuda_on_host::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  const cuda_on_host::Place& place = cuda_on_host::Place::current()) {
  const int lane = cuda_on_host::Lane();
  const int source = lane ^ lane_mask;
  return cuda_on_host::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, place);
}

#define CUDA_ON_HOST_WARP_REDUCTION(name, op)                                               \
  inline unsigned name(unsigned mask, unsigned value,                                       \
                       const cuda_on_host::Place& place = cuda_on_host::Place::current()) { \
    return static_cast<unsigned>(                                                           \
        cuda_on_host::SyncWarp(cuda_on_host::WarpOp::op, mask, value, 0, place));           \
  }
CUDA_ON_HOST_WARP_REDUCTION(__reduce_add_sync, kAdd)
CUDA_ON_HOST_WARP_REDUCTION(__reduce_min_sync, kMin)
CUDA_ON_HOST_WARP_REDUCTION(__reduce_max_sync, kMax)
CUDA_ON_HOST_WARP_REDUCTION(__reduce_and_sync, kAnd)
CUDA_ON_HOST_WARP_REDUCTION(__reduce_or_sync, kOr)
CUDA_ON_HOST_WARP_REDUCTION(__reduce_xor_sync, kXor)
#undef CUDA_ON_HOST_WARP_REDUCTION

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_SYNCHRONIZATION_H_
