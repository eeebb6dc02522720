// Selection by any source of scores, with a scratch of its own.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_

#include "core/src/cuda/select/select_groups.cuh"
#include "core/src/cuda/select/select_scores.h"
#include "core/src/cuda/select/select_whole.cuh"

namespace sparsefw::cuda {

// The scratch, in this order: selection, histogram and ticket, no fixed bits, sums of blocks, which
// nobody reads.
inline constexpr int64_t kScratchHistogram = sizeof(Selection);
inline constexpr int64_t kScratchFixed =
    kScratchHistogram + int64_t{sizeof(unsigned)} * (kDigitBins + 2);
static_assert(kScratchHistogram % 8 == 0 && kScratchFixed % 8 == 0);

inline int64_t ScratchBitBytes(int64_t rows, int64_t cols) { return rows * StrideOf(cols) / 8; }

// What the source of [rows, cols] scores selects; `source` as core/src/cuda/iteration/sources.cuh
// describes it, with nothing that is summed up.
template <typename Source>
CudaError SelectBySource(const Source& source, const SelectionSpace& space, const Groups& groups,
                         BitWord* bits, cudaStream_t stream) {
  IterateView<double> view;
  view.rows = space.rows;
  view.cols = space.cols;
  view.stride = StrideOf(space.cols);
  view.groups = groups;
  view.shared_bytes = space.shared_bytes;
  view.scratch.selection = reinterpret_cast<Selection*>(space.scratch);
  view.scratch.histogram = reinterpret_cast<unsigned*>(space.scratch + kScratchHistogram);
  view.scratch.ticket = view.scratch.histogram + kDigitBins;
  view.fixed = reinterpret_cast<const BitWord*>(space.scratch + kScratchFixed);
  view.partial = reinterpret_cast<double*>(space.scratch + kScratchFixed +
                                           ScratchBitBytes(view.rows, view.cols));
  if (!groups.whole_matrix) return SelectInGroups(source, view, nullptr, bits, stream);
  return SelectWhole(source, view, groups.total_kept, false, nullptr, bits, stream);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECT_SCORES_CUH_
