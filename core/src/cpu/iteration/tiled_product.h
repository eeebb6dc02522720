// Sparse rows times G for many rows at a time, panel by panel: a panel of G
// (panels.h) is used for every row before the next one is taken, so that G comes
// from beyond the L2 cache once, not once for every term.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_TILED_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_TILED_PRODUCT_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Half of a small L2 cache: the tile in use and the next one, which is fetched
// meanwhile, fit into it together.
inline constexpr int64_t kTileBytes = 512 * 1024;
// Rows of it, in values of so many bytes.
constexpr int64_t TileDepth(int64_t size) { return kTileBytes / (kPanelCols * size); }
template <typename Real>
constexpr int64_t kTileDepth = TileDepth(sizeof(Real));

// Bounds the memory of the terms of a group of rows. At this size a panel is read
// so often that to read it once more for the next group costs nothing.
inline constexpr int64_t kGroupTerms = int64_t{1} << 20;

// out += terms G on the rows of blocks first, first + 1, ...: one SparseRows a
// block, with tiles of kTileDepth.
template <typename Real>
struct TiledTerms {
  std::span<const SparseRows<Real>> blocks;
  Matrix<Real>& out;
};

// Errors: Cancelled; the products are then unfinished
template <typename Real>
absl::Status AddTiledProducts(const PanelLayer<Real>& layer, const RowBlocks& blocks, int64_t first,
                              std::span<const TiledTerms<Real>> products,
                              const ParallelContext& context);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_TILED_PRODUCT_H_
