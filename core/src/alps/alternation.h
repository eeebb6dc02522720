// The iteration of ALPS and the steps on its support: sparsefw/alps.h.
#ifndef SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
#define SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/alps/shifted_inverse.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::alps {

// A layer in the units that make the diagonal of H^ 1; both may be wider than cols.
struct NormalisedLayer {
  const Matrix<double>& h;      // [cols, stride]
  const Matrix<double>& dense;  // B0 [rows, stride]
  int64_t rows = 0;
  int64_t cols = 0;
};

// Memory: six matrices like `dense`, three like `h`. Lives for one call of Run.
class Alternation {
 public:
  Alternation(const NormalisedLayer& layer, const Pattern& pattern, const ParallelContext& context);

  // Errors: Cancelled, InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE)
  absl::Status Run();

  const Matrix<double>& weights() const { return b_; }       // 0 where pruned
  const Matrix<uint8_t>& pruned() const { return pruned_; }  // [rows, cols]: 1 where pruned
  int64_t iterations() const { return iterations_; }

 private:
  enum class Next { kGoOn, kBeginAgain, kEnd };

  absl::Status Iterate();
  // Marks in pruned_ all but the largest magnitudes that `score` writes to a row.
  absl::Status SelectLargest(absl::FunctionRef<void(int64_t, double*)> score);
  Next Adapt();
  absl::Status StepsOnSupport();
  absl::Status Multiply(const Matrix<double>& left, const Matrix<double>& right,
                        Matrix<double>& out) const;
  absl::Status EachRow(absl::FunctionRef<void(int64_t)> body) const;
  bool Pruned(int64_t row, int64_t col) const { return pruned_(row, col) != 0; }

  const NormalisedLayer layer_;
  const Pattern pattern_;
  const Groups groups_;
  const ParallelContext& context_;
  ShiftedInverse inverse_;
  Matrix<double> y_;
  Matrix<double> b_;
  Matrix<double> d_;
  Matrix<double> v_;
  Matrix<double> right_;  // Y - V + rho D; scores of a selection
  Matrix<uint8_t> pruned_;
  Matrix<uint8_t> checked_;  // pruned_ at the last check
  double rho_ = 0.1;
  bool raised_ = false;
  int64_t iterations_ = 0;
};

}  // namespace sparsefw::alps

#endif  // SPARSEFW_CORE_SRC_ALPS_ALTERNATION_H_
