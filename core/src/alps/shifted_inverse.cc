#include "core/src/alps/shifted_inverse.h"

#include <algorithm>
#include <optional>

#include "core/src/linalg/blas.h"
#include "core/src/sparsegpt/inverse_factor.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::alps {

ShiftedInverse::ShiftedInverse(const Matrix<double>& h, int64_t size,
                               const ParallelContext& context)
    : h_(h),
      size_(size),
      context_(context),
      factor_(size, h.cols()),
      transposed_(size, h.cols()),
      inverse_(size, h.cols()) {}

// H + rho I = R R^T, U = R^-1, inverse = U^T U.
absl::Status ShiftedInverse::Shift(double rho) {
  if (rho == rho_) return absl::OkStatus();
  for (int64_t row = 0; row < size_; ++row) std::copy_n(h_.row(row), h_.cols(), factor_.row(row));
  sparsegpt::InverseFactor factor(factor_, size_, context_);
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<sparsegpt::FailedPivot> failed,
                            factor.Factorize(rho));
  if (failed.has_value()) {
    return Invalid("GRAM_NOT_POSITIVE_DEFINITE",
                   "gram must be positive semi-definite; with rho=%g added to its normalised "
                   "diagonal the pivot of column %d is %g times its diagonal",
                   rho, failed->column, failed->pivot / failed->diagonal);
  }
  const RowBlocks blocks{size_, 32};
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      for (int64_t col = 0; col < row; ++col) factor_(row, col) = 0;
      for (int64_t col = 0; col < size_; ++col) {
        transposed_(row, col) = col <= row ? factor_(col, row) : 0;
      }
    }
  }));
  SPARSEFW_RETURN_IF_ERROR(Gemm({.rows = size_,
                                 .cols = size_,
                                 .depth = size_,
                                 .a = transposed_.data(),
                                 .a_stride = transposed_.cols(),
                                 .b = factor_.data(),
                                 .b_stride = factor_.cols(),
                                 .c = inverse_.data(),
                                 .c_stride = inverse_.cols()},
                                context_));
  rho_ = rho;
  return absl::OkStatus();
}

}  // namespace sparsefw::alps
