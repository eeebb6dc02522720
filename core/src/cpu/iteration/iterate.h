// The state of one Frank-Wolfe iteration: E, U and the vertices.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_

#include <memory>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// With D(M) = W.(1 - Mfixed - M), in the notation of docs/numerics.md:
template <typename Real>
struct Iterate {
  std::shared_ptr<const PanelLayer<Real>> layer;
  Groups groups;
  RowBlocks blocks;
  BitRows fixed;
  Matrix<Real> product;         // E_t = D(M_t) G
  Matrix<Real> vertex_product;  // U_{t-1} = D(V_{t-1}) G
  BitRows previous;             // V_{t-1}
  BitRows vertex;               // V_t, chosen at E_t

  RowOperands<Real> Row(int64_t row) {
    return {layer->words, layer->weights.row(row), vertex_product.row(row), fixed.row(row),
            product.row(row)};
  }
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_ITERATE_H_
