// G with its off-diagonal entries made smaller, and what that changes of a loss.
//
//   H = (1 - s) G + s diag(G),  0 <= s < 1
//   L_H(D) = (1 - s) L_G(D) + s sum_ij D_ij^2 G_jj,  D = W - W'
//
// The diagonal stays, so Wanda's and RIA's scores do. H is positive semi-definite where G
// is. What s is for and how it is chosen: docs/numerics.md, Shrinkage.
#ifndef SPARSEFW_CORE_SRC_SOLVER_SHRUNK_GRAM_H_
#define SPARSEFW_CORE_SRC_SOLVER_SHRUNK_GRAM_H_

#include <variant>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// H, of G's dtype. Empty until there is one.
class ShrunkGram {
 public:
  ShrunkGram() = default;

  // gram: [n, n], F32 or F64. Memory: n^2 of its values. Cost: one pass over them.
  // Threads: those of ParallelFor, whose limits end it by an exception: there is no part of H.
  ShrunkGram(ConstMatrixView gram, double shrinkage);

  bool empty() const { return view().empty(); }
  ConstMatrixView view() const {
    return std::visit([](const auto& values) { return values.view(); }, values_);
  }

 private:
  std::variant<Matrix<float>, Matrix<double>> values_;
};

// L_G of the weights, or of mask.W where there are none, from L_H.
//
// Numeric: float64, at least 0. The rounding of H, if it is F32, adds up to
//          2^-24 sum_ijk |D_ij G_jk D_ik|, that of L_H its own error / (1 - s).
// Threads: those of ParallelFor; the same bits for any number of them.
double UnshrunkLoss(double loss, double shrinkage, ConstMatrixView weights, ConstMatrixView gram,
                    const Mask& mask, const Matrix<float>& new_weights);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SOLVER_SHRUNK_GRAM_H_
