#include "core/src/alps/shifted_inverse.h"

#include <algorithm>
#include <optional>

#include "core/src/linalg/blas.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::alps {

absl::Status NotPositiveDefinite(double rho, const sparsegpt::FailedPivot& failed) {
  return Invalid("GRAM_NOT_POSITIVE_DEFINITE",
                 "gram must be positive semi-definite; with rho=%g added to its normalised "
                 "diagonal the pivot of column %d is %g times its diagonal",
                 rho, failed.column, failed.pivot / failed.diagonal);
}

template <typename Real>
ShiftedInverse<Real>::ShiftedInverse(const Matrix<double>& h, int64_t size,
                                     const ParallelContext& context)
    : h_(h),
      size_(size),
      context_(context),
      factor_(size, h.cols()),
      upper_(kSame ? 0 : size, kSame ? 0 : h.cols()),
      transposed_(size, h.cols()),
      inverse_(size, h.cols()) {}

// H + rho I = R R^T, U = R^-1, inverse = U^T U.
template <typename Real>
absl::Status ShiftedInverse<Real>::Shift(double rho) {
  if (rho == rho_) return absl::OkStatus();
  for (int64_t row = 0; row < size_; ++row) std::copy_n(h_.row(row), h_.cols(), factor_.row(row));
  sparsegpt::InverseFactor factor(factor_, size_, context_);
  SPARSEFW_ASSIGN_OR_RETURN(const std::optional<sparsegpt::FailedPivot> failed,
                            factor.Factorize(rho));
  if (failed.has_value()) {
    return NotPositiveDefinite(rho, *failed);
  }
  SPARSEFW_RETURN_IF_ERROR(context_.ForEachRow({size_, 32}, [&](int64_t row) {
    for (int64_t col = 0; col < size_; ++col) {
      if constexpr (kSame) {
        if (col < row) factor_(row, col) = 0;
      } else {
        upper_(row, col) = col >= row ? static_cast<Real>(factor_(row, col)) : 0;
      }
      transposed_(row, col) = col <= row ? static_cast<Real>(factor_(col, row)) : 0;
    }
  }));
  SPARSEFW_RETURN_IF_ERROR(MultiplyFactors());
  rho_ = rho;
  return absl::OkStatus();
}

// A block of rows takes no more than the columns before its end, which need no more terms either;
// the others mirror these.
template <typename Real>
absl::Status ShiftedInverse<Real>::MultiplyFactors() {
  constexpr int64_t kBlock = 256;
  for (int64_t first = 0; first < size_; first += kBlock) {
    const int64_t end = std::min(first + kBlock, size_);
    SPARSEFW_RETURN_IF_ERROR(
        Gemm<Real>({end - first, end, end}, {transposed_.row(first), transposed_.cols()},
                   {Upper(), factor_.cols()}, {inverse_.row(first), inverse_.cols()}, context_));
  }
  return context_.ForEachRow({size_, 32}, [&](int64_t row) {
    for (int64_t col = row + 1; col < size_; ++col) inverse_(row, col) = inverse_(col, row);
  });
}

template class ShiftedInverse<float>;
template class ShiftedInverse<double>;

}  // namespace sparsefw::alps
