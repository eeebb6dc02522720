// Weight reconstruction by the normal equations of one row after the other.
#ifndef SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_RECONSTRUCT_H_
#define SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_RECONSTRUCT_H_

#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Engine::Reconstruct: G_SS d = (D G)_S solved by Cholesky with pivoting;
// columns that depend on others, and those that are dead, keep their weight.
// gram is symmetric. `stop` is asked before every row and every step of its
// elimination: the rows not solved then keep their masked weights, or `guess`
// where it is not null.
// Cost: rows * (kept per row)^3 / 3 multiply-adds, twice.
Matrix<float> ReferenceReconstruct(const Matrix<double>& weights, const Matrix<double>& gram,
                                   const Mask& mask, DType dtype, DType gram_dtype,
                                   const Matrix<float>* guess, absl::FunctionRef<bool()> stop);

// Solves a x = b for a symmetric positive semi-definite [n, n] and b in its
// range; where the rank is lower, the entries of x beyond it are 0. Nothing where
// `stop`, asked n times and more, ended it.
std::optional<std::vector<double>> SolveSemidefinite(Matrix<double> a, std::vector<double> b,
                                                     absl::FunctionRef<bool()> stop);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_REFERENCE_REFERENCE_RECONSTRUCT_H_
