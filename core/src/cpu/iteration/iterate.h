// The state of one Frank-Wolfe iteration: E, U and the vertices.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// V_{t-2} and its product. Iterates zigzag: V_t is often nearer to it than to V_{t-1}, and U_t
// is then formed from it with half of the terms.
//
// Memory: as much as U. Held while all columns are iterated.
template <typename Real>
struct OlderVertex {
  BitRows bits;
  Matrix<Real> product;        // U_{t-2}; never read in a row where V_{t-2} = V_{t-1}
  std::vector<double> change;  // b_{t-1} - b_{t-2} of each row

  bool tracked() const { return product.size() > 0; }
  void Forget() { *this = {}; }
  // Starts with V_{t-2} = V_{t-1}, unless it is tracked already.
  void StartTracking(BitRows& previous, const Matrix<Real>& vertex_product, int64_t cols) {
    if (tracked()) return;
    const int64_t rows = vertex_product.rows();
    bits = BitRows(rows, cols);
    std::copy_n(previous.span().data(), previous.span().size(), bits.span().data());
    product = Matrix<Real>(rows, vertex_product.cols());
    change.assign(static_cast<size_t>(rows), 0);
  }
};

// With D(M) = W.(1 - Mfixed - M), in the notation of docs/numerics.md:
template <typename Real>
struct Iterate {
  std::shared_ptr<const PanelLayer<Real>> layer;
  Groups groups;
  RowBlocks blocks;
  int64_t free = 0;  // what the fixed set leaves of the kept weights of the matrix
  BitRows fixed;
  Matrix<Real> product;         // E_t = D(M_t) G
  Matrix<Real> vertex_product;  // U_{t-1} = D(V_{t-1}) G
  BitRows previous;             // V_{t-1}
  BitRows vertex;               // V_t, chosen at E_t
  OlderVertex<Real> older;

  RowOperands<Real> Row(int64_t row) {
    return {layer->words, layer->weights.row(row), vertex_product.row(row), fixed.row(row),
            product.row(row)};
  }
  // What it leaves of a row's budget.
  int64_t FreeOf(int64_t row) const {
    return groups.capacity - CountBits(fixed.row(row), layer->words);
  }
  void TrackOlder() { older.StartTracking(previous, vertex_product, layer->cols); }
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_
