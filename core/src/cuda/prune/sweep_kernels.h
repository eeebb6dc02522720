// The launches of SparseGPT's sweep over the columns: sparsefw/sparsegpt.h says what it computes.
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_SWEEP_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_SWEEP_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// Columns of a tile at most: a warp has them in registers.
inline constexpr int kTileColumns = 128;

// The columns [first, first + width) of every row.
struct SweepTile {
  int64_t rows = 0;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t width = 0;
  double* weights = nullptr;       // [rows, stride]
  const double* factor = nullptr;  // U, [>= first + width, stride]
  // The columns that are kept, where they were chosen before: bits of the tile's columns from word
  // 0 of each row on, rows `chosen_words` apart.
  const BitWord* chosen = nullptr;
  int64_t chosen_words = 0;
  // Else they are chosen here: `keep` of every `group` columns, whole groups of a tile.
  int group = 0;
  int keep = 0;
  BitWord* mask = nullptr;   // [rows, stride / 32]: the bits of what is kept are set
  double* errors = nullptr;  // [rows, kTileColumns]: 0 where kept
};
// Prunes a tile of up to kTileColumns columns and lets those that follow in it make up for it.
CudaError LaunchSweepTile(const SweepTile& tile, cudaStream_t stream);

// scores [rows, StrideOf(width)] = |w_ij| / U_jj, -1 in the padding; any width.
CudaError LaunchSweepScores(const SweepTile& block, double* scores, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_SWEEP_KERNELS_H_
