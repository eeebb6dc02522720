#include "sparsefw/matrix.h"

#include <sys/mman.h>

#include <limits>

namespace sparsefw {
namespace {

constexpr uintptr_t kLine = 64;
constexpr uintptr_t kPage = 4096;
constexpr size_t kLarge = size_t{4} << 20;

// Only advice: where the system has no huge pages, ordinary ones do.
void AskForHugePages(uintptr_t begin, uintptr_t end) {
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = end / kPage * kPage;
  if (last > first) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace

// calloc knows which memory is zero already because it has just been mapped.
AlignedBlock AllocateZeroed(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() - kLine) return {};
  auto* raw = static_cast<std::byte*>(std::calloc(bytes + kLine, 1));
  if (raw == nullptr) return {};
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const size_t offset = (kLine - address % kLine) % kLine;
  if (bytes >= kLarge) AskForHugePages(address + offset, address + offset + bytes);
  return {raw + offset, offset};
}

}  // namespace sparsefw
