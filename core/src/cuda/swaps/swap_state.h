// Device memory of swap refinement: the mask that is being improved and E = D G
// of it.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_STATE_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_STATE_H_

#include <cstddef>
#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"

namespace sparsefw::cuda {

// How far the exchanges within a row have come: launches are short, and the
// next one goes on from here. All zero at first, and where a row was changed
// from outside.
struct RowProgress {
  int64_t swaps;
  double loss_change;
  int64_t first;   // column where the group begins that is being swept
  int64_t proven;  // columns of groups swept in vain since the last exchange
  int32_t moved;   // this sweep of the group has exchanged something
  int32_t done;    // no exchange within the row lowers the loss
  int32_t listed;  // weights in the order of the sweep that is under way; 0: none is
  int32_t place;   // those of them that were looked at
};

// Views of device memory; no ownership. E is in float64 although W and G may
// be in float32: the changes that decide near the end are 10^-7 of a row's loss.
template <typename Real>
struct SwapState {
  int64_t rows;
  int64_t cols;
  int64_t stride;
  int64_t group_cols;
  const Real* weights;      // [rows, stride]
  const Real* gram;         // [cols, stride]
  const double* diagonal;   // [stride]: G_jj
  const double* reach;      // [stride]: max over j != p of |G_pj| / sqrt(G_jj)
  const double* tolerance;  // [rows]: core/src/frank_wolfe/swap_tolerance.h
  const BitWord* locked;    // [rows, stride / 32]: kept weights that must stay; or null
  BitWord* kept;            // [rows, stride / 32]
  int32_t* order;           // [rows, stride]: columns in the order of a sweep
  int32_t* scratch;         // [rows, stride]
  double* product;          // [rows, stride]: E
  RowProgress* progress;    // [rows]
  // Dynamic shared memory that E of a row is worked on in; 0: in place.
  size_t shared_bytes;
};

// SwapState::shared_bytes on a device that gives a block at most `limit` bytes
// of shared memory, static arrays included.
inline size_t SharedProductBytes(int64_t stride, size_t limit) {
  constexpr size_t kStatic = 20 * 1024;  // of the reductions, at most
  const auto bytes = static_cast<size_t>(stride) * sizeof(double);
  return bytes + kStatic <= limit ? bytes : 0;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_STATE_H_
