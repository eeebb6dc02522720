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

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_SYNCHRONIZATION_H_
