#include "core/src/cpu/iteration/tiled_product.h"

#include <algorithm>

#include "core/src/cpu/linalg/panel_kernels.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kCacheLine = 64;

// Fetches part `index` of `parts` of the `bytes` at `begin` into the L2 cache.
void PrefetchPart(const void* begin, int64_t bytes, int64_t index, int64_t parts) {
  const auto* first = static_cast<const char*>(begin);
  const int64_t lines = bytes / kCacheLine;
  for (int64_t line = lines * index / parts; line < lines * (index + 1) / parts; ++line) {
    __builtin_prefetch(first + line * kCacheLine, 0, 2);
  }
}

}  // namespace

// One panel is one task. More tasks than panels would only make several cores
// fetch the same panel; only small layers have fewer panels than there are cores.
template <typename Real>
absl::Status AddTiledProducts(const PanelLayer<Real>& layer, const RowBlocks& blocks, int64_t first,
                              std::span<const TiledTerms<Real>> products,
                              const ParallelContext& context) {
  const PanelView<Real> gram = layer.gram.view();
  const int64_t tiles = (gram.depth + kTileDepth<Real> - 1) / kTileDepth<Real>;
  const int64_t count = std::ssize(products.front().blocks);
  return context.ForEach(gram.count, [&](int64_t panel) {
    for (int64_t tile = 0; tile < tiles && !context.stopped(); ++tile) {
      // The next tile of this panel, or the first of the next one.
      const Real* next = gram.panel(panel) + (tile + 1) * kTileDepth<Real> * kPanelCols;
      next = std::min(next, gram.panel(panel + 1));
      const int64_t bytes = std::min<int64_t>(
          kTileBytes, (gram.panel(gram.count) - next) * static_cast<int64_t>(sizeof(Real)));
      for (int64_t index = 0; index < count; ++index) {
        for (const TiledTerms<Real>& product : products) {
          KernelsOfPanels<Real>().add_sparse_product(
              {.a = product.blocks[static_cast<size_t>(index)],
               .tile = tile,
               .gram = gram,
               .panels = {panel, panel + 1},
               .out = product.out.row(blocks.begin(first + index)),
               .out_stride = layer.stride()});
        }
        PrefetchPart(next, bytes, index, count);
      }
    }
  });
}

template absl::Status AddTiledProducts(const PanelLayer<float>&, const RowBlocks&, int64_t,
                                       std::span<const TiledTerms<float>>, const ParallelContext&);
template absl::Status AddTiledProducts(const PanelLayer<double>&, const RowBlocks&, int64_t,
                                       std::span<const TiledTerms<double>>, const ParallelContext&);

}  // namespace sparsefw::cpu
