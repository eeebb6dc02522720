// (H + rho I)^-1 for one rho after the other.
#ifndef SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_
#define SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::alps {

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
  const Matrix<double>& inverse() const { return inverse_; }

 private:
  const Matrix<double>& h_;
  const int64_t size_;
  const ParallelContext& context_;
  double rho_ = -1;
  Matrix<double> factor_;
  Matrix<double> transposed_;
  Matrix<double> inverse_;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_SHIFTED_INVERSE_H_
