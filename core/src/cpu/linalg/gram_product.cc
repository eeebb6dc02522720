#include "core/src/cpu/linalg/gram_product.h"

#include <algorithm>

#include "core/src/cpu/linalg/panel_kernels.h"

namespace sparsefw::cpu {
namespace {

// A multiple of the rows that the kernel takes at a time; enough of them that
// reading G once for all of them costs little beside the product.
constexpr int64_t kRows = 96;

}  // namespace

template <typename Real>
absl::Status MultiplyByGram(const PanelLayer<Real>& layer, const ParallelContext& context,
                            absl::FunctionRef<void(int64_t, Real*)> fill,
                            absl::FunctionRef<void(int64_t, const Real*, const Real*)> visit) {
  const RowBlocks blocks{layer.rows, kRows};
  const PanelView<Real> gram = layer.gram.view();
  return context.ForEach(blocks.count(), [&](int64_t block) {
    const int64_t first = blocks.begin(block);
    const int64_t rows = blocks.end(block) - first;
    Matrix<Real> input(rows, layer.stride());
    Matrix<Real> product(rows, layer.stride());
    for (int64_t row = 0; row < rows; ++row) fill(first + row, input.row(row));
    for (int64_t panel = 0; panel < gram.count; ++panel) {
      if (context.stopped()) return;
      KernelsOfPanels<Real>().multiply_dense({.a = input.data(),
                                              .a_stride = layer.stride(),
                                              .rows = rows,
                                              .gram = gram,
                                              .panels = {panel, panel + 1},
                                              .out = product.data(),
                                              .out_stride = layer.stride()});
    }
    for (int64_t row = 0; row < rows; ++row) visit(first + row, input.row(row), product.row(row));
  });
}

int64_t GramProductBytes(int64_t rows, int64_t cols, int threads, int64_t size) {
  const int64_t stride = (cols + 63) / 64 * 64;
  return 2 * threads * std::min(rows, kRows) * stride * size;
}

template absl::Status MultiplyByGram(const PanelLayer<float>&, const ParallelContext&,
                                     absl::FunctionRef<void(int64_t, float*)>,
                                     absl::FunctionRef<void(int64_t, const float*, const float*)>);
template absl::Status MultiplyByGram(
    const PanelLayer<double>&, const ParallelContext&, absl::FunctionRef<void(int64_t, double*)>,
    absl::FunctionRef<void(int64_t, const double*, const double*)>);

}  // namespace sparsefw::cpu
