// The iteration of ALPS and the steps on its support: sparsefw/alps.h.
#ifndef SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
#define SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/alps/penalty.h"
#include "core/src/alps/shifted_inverse.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::alps {

// A layer in the units that make the diagonal of H^ 1; both may be wider than cols.
template <typename Real>
struct NormalisedLayer {
  const Matrix<double>& exact;  // H^ [cols, stride], for the inverses
  const Matrix<Real>& h;        // the same
  const Matrix<Real>& dense;    // B0 [rows, stride]
  int64_t rows = 0;
  int64_t cols = 0;
};

// Memory: six matrices like `dense`, three like `h` and a factor in float64. Lives for one call of
// Run.
template <typename Real>
class Alternation {
 public:
  // settled: that of penalty.h.
  Alternation(const NormalisedLayer<Real>& layer, const Pattern& pattern, double settled,
              const ParallelContext& context);

  // Errors: Cancelled, InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE)
  absl::Status Run();
  // After it, one of these: the steps of ALPS on the support; or so many of
  // cpu/reconstruct/row_conjugate_gradients.h, which get nearer.
  // Errors: Cancelled
  absl::Status StepsOnSupport();
  absl::Status PreconditionedSteps(int64_t steps);

  const Matrix<Real>& weights() const { return b_; }         // 0 where pruned
  const Matrix<uint8_t>& pruned() const { return pruned_; }  // [rows, cols]: 1 where pruned
  int64_t iterations() const { return iterations_; }

 private:
  absl::Status Iterate();
  // Marks in pruned_ all but the largest magnitudes that `score` writes to a row.
  absl::Status SelectLargest(absl::FunctionRef<void(int64_t, Real*)> score);
  Penalty::Next Adapt();
  absl::Status TakeSupport();
  absl::Status Multiply(const Matrix<Real>& left, const Matrix<Real>& right,
                        Matrix<Real>& out) const;
  absl::Status EachRow(absl::FunctionRef<void(int64_t)> body) const;
  bool Pruned(int64_t row, int64_t col) const { return pruned_(row, col) != 0; }

  const NormalisedLayer<Real> layer_;
  const Pattern pattern_;
  const Groups groups_;
  Penalty penalty_;
  const ParallelContext& context_;
  ShiftedInverse<Real> inverse_;
  Matrix<Real> y_;
  Matrix<Real> b_;
  Matrix<Real> d_;
  Matrix<Real> v_;
  Matrix<Real> right_;  // Y - V + rho D; scores of a selection
  Matrix<uint8_t> pruned_;
  Matrix<uint8_t> checked_;  // pruned_ at the last check
  int64_t iterations_ = 0;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
