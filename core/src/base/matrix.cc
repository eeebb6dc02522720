#include "sparsefw/matrix.h"

#include <sys/mman.h>

namespace sparsefw {

void* AllocateAligned(size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kLine;
  const size_t size = bytes == 0 ? kLine : (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, size);
  // Only advice: where the system has no huge pages, ordinary ones do.
  if (memory != nullptr && alignment == kHugePage) (void)madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace sparsefw
