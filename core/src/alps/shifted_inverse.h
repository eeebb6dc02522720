// (H + rho I)^-1 for one rho after the other.
#ifndef SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_
#define SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/sparsegpt/inverse_factor.h"
#include "sparsefw/matrix.h"

namespace sparsefw::alps {

// H + rho I has a pivot that is not positive: InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE).
absl::Status NotPositiveDefinite(double rho, const sparsegpt::FailedPivot& failed);

// The factor in float64, the inverse as Real.
template <typename Real>
class ShiftedInverse {
 public:
  // h [size, stride], symmetric; outlives this object.
  ShiftedInverse(const Matrix<double>& h, int64_t size, const ParallelContext& context);

  // Does nothing where rho is that of the last call.
  // Cost:   8/3 size^3 flops
  // Errors: Cancelled
  //         InvalidArgument  H + rho I is not positive definite
  //                          (GRAM_NOT_POSITIVE_DEFINITE)
  absl::Status Shift(double rho);
  const Matrix<Real>& inverse() const { return inverse_; }

 private:
  static constexpr bool kSame = sizeof(Real) == sizeof(double);

  absl::Status MultiplyFactors();
  const Real* Upper() const {
    if constexpr (kSame) {
      return factor_.data();
    } else {
      return upper_.data();
    }
  }

  const Matrix<double>& h_;
  const int64_t size_;
  const ParallelContext& context_;
  double rho_ = -1;
  Matrix<double> factor_;
  Matrix<Real> upper_;  // the factor as Real, where that is not float64
  Matrix<Real> transposed_;
  Matrix<Real> inverse_;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_
