// Products with G in panels (panels.h): the vectorised loops, compiled for
// several instruction sets and chosen at run time.
//
// Both read `out` rows in the engine's own form: 64-byte aligned, a multiple of
// 64 columns long. Results do not depend on how rows, panels and tiles are
// handed out: an element of `out` always takes its terms in ascending order.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_PANEL_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_PANEL_KERNELS_H_

#include <cstdint>

#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/linalg/panels.h"

namespace sparsefw::cpu {

struct PanelRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// out += A G on the columns of some panels, of A the terms of one tile.
//
//   out[i, :] += sum over terms (factor, k) of row i and the tile: factor * G[k, :]
//
// The columns of one panel stay in registers over all terms of a row; the rows
// of the tile, in cache over all rows of A.
template <typename Real>
struct SparseProduct {
  const SparseRows<Real>& a;
  int64_t tile = 0;
  PanelView<Real> gram;
  PanelRange panels;
  Real* out = nullptr;
  int64_t out_stride = 0;
};

// out = A G for a few dense rows; G in panels, not row-major. Sums run over blocks of 256 rows of
// G, then over the blocks: in float32 that is some sixteen times closer than one running sum over
// 4096.
template <typename Real>
struct DenseProduct {
  const Real* a = nullptr;  // [rows, gram.depth]
  int64_t a_stride = 0;
  int64_t rows = 0;
  PanelView<Real> gram;
  PanelRange panels;
  Real* out = nullptr;
  int64_t out_stride = 0;
};

template <typename Real>
struct PanelKernels {
  void (*add_sparse_product)(const SparseProduct<Real>& product);
  void (*multiply_dense)(const DenseProduct<Real>& product);
};
template <typename Real>
const PanelKernels<Real>& KernelsOfPanels();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_PANEL_KERNELS_H_
