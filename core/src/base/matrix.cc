#include "sparsefw/matrix.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <limits>

namespace sparsefw {
namespace {

constexpr uintptr_t kLine = 64;
constexpr size_t kLarge = size_t{4} << 20;

// GCC says so by macros, Clang by features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPARSEFW_SANITIZED_MALLOC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SPARSEFW_SANITIZED_MALLOC
#endif
#endif

#ifdef SPARSEFW_SANITIZED_MALLOC
constexpr bool kMapsLargeBlocks = false;
#else
constexpr bool kMapsLargeBlocks = true;
#endif

std::atomic<int64_t> large_block_bytes = 0;

// malloc would do the same up to a limit that moves: once a block of some size was freed, it takes
// the next ones from its heap and keeps them there.
AlignedBlock MapZeroed(size_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return {};
  // Only advice: where the system has no huge pages, ordinary ones do.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  large_block_bytes += static_cast<int64_t>(bytes);
  return {.data = data, .mapped = bytes};
}

}  // namespace

// calloc knows which memory is zero already because it has just been mapped.
AlignedBlock AllocateZeroed(size_t bytes) {
  if (kMapsLargeBlocks && bytes >= kLarge) return MapZeroed(bytes);
  if (bytes > std::numeric_limits<size_t>::max() - kLine) return {};
  auto* raw = static_cast<std::byte*>(std::calloc(bytes + kLine, 1));
  if (raw == nullptr) return {};
  const size_t offset = (kLine - reinterpret_cast<uintptr_t>(raw) % kLine) % kLine;
  return {.data = raw + offset, .offset = offset};
}

void FreeBlock(const AlignedBlock& block) {
  if (block.mapped == 0) {
    std::free(static_cast<std::byte*>(block.data) - block.offset);
    return;
  }
  munmap(block.data, block.mapped);
  large_block_bytes -= static_cast<int64_t>(block.mapped);
}

int64_t LargeBlockBytes() { return large_block_bytes; }

}  // namespace sparsefw
