#include "core/src/sparsegpt/damping.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "core/src/sparsegpt/inverse_factor.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::sparsegpt {
namespace {

constexpr double kFirstDamping = 0.01;  // after 0
constexpr double kMaxDamping = 1;

double Raised(double damping) {
  return damping == 0 ? kFirstDamping : std::min(10 * damping, kMaxDamping);
}

std::vector<int64_t> DeadColumns(const Matrix<double>& gram, int64_t size) {
  std::vector<int64_t> dead;
  for (int64_t i = 0; i < size; ++i) {
    if (gram(i, i) == 0) dead.push_back(i);
  }
  return dead;
}

// The mean of the diagonal without its zeros.
double MeanDiagonal(const Matrix<double>& gram, int64_t size, int64_t live) {
  if (live == 0) return 1;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += gram(i, i);
  return sum / static_cast<double>(live);
}

absl::Status NotPositiveDefinite(double damping, const FailedPivot& failed) {
  return WithReason(
      absl::InvalidArgumentError(absl::StrFormat(
          "gram must be positive definite once damping times the mean of its diagonal is added to "
          "its diagonal; with damping=%g, the most that is tried, the pivot of column %d is %g "
          "times its diagonal",
          damping, failed.column, failed.pivot / failed.diagonal)),
      "GRAM_NOT_POSITIVE_DEFINITE",
      {{"damping", absl::StrFormat("%g", damping)},
       {"column", absl::StrFormat("%d", failed.column)}});
}

}  // namespace

absl::StatusOr<DampedFactor> FactorizeDamped(Matrix<double>& gram, int64_t size, double damping,
                                             const ParallelContext& context) {
  DampedFactor result{.damping = damping, .dead_columns = DeadColumns(gram, size)};
  const double mean = MeanDiagonal(gram, size, size - std::ssize(result.dead_columns));
  for (const int64_t column : result.dead_columns) gram(column, column) = mean;
  InverseFactor factor(gram, size, context);
  while (true) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::optional<FailedPivot> failed,
                              factor.Factorize(result.damping * mean));
    if (!failed) return result;
    if (result.damping >= kMaxDamping) return NotPositiveDefinite(result.damping, *failed);
    result.damping = Raised(result.damping);
  }
}

}  // namespace sparsefw::sparsegpt
