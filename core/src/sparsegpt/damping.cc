#include "core/src/sparsegpt/damping.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::sparsegpt {
namespace {

constexpr double kFirstDamping = 0.01;  // after 0
constexpr double kMaxDamping = 1;

double Raised(double damping) {
  return damping == 0 ? kFirstDamping : std::min(10 * damping, kMaxDamping);
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

int64_t PrunedOf(int64_t size, double sparsity) {
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * sparsity));
}

int64_t BlockColumns(const Pattern& pattern, int64_t block, int64_t cols) {
  const int64_t limited = std::min(block, cols);
  if (pattern.kind != Pattern::Kind::kKeepOfGroup) return limited;
  return std::max<int64_t>(1, limited / pattern.group) * pattern.group;
}

LiveDiagonal ReplaceDead(std::vector<double>& diagonal) {
  LiveDiagonal found;
  double sum = 0;
  for (size_t i = 0; i < diagonal.size(); ++i) {
    sum += diagonal[i];
    if (diagonal[i] == 0) found.dead_columns.push_back(static_cast<int64_t>(i));
  }
  const int64_t live = std::ssize(diagonal) - std::ssize(found.dead_columns);
  if (live > 0) found.mean = sum / static_cast<double>(live);
  for (const int64_t column : found.dead_columns) {
    diagonal[static_cast<size_t>(column)] = found.mean;
  }
  return found;
}

absl::StatusOr<double> FindDamping(
    double damping, double mean,
    absl::FunctionRef<absl::StatusOr<std::optional<FailedPivot>>(double added)> factorize) {
  while (true) {
    SPARSEFW_ASSIGN_OR_RETURN(const std::optional<FailedPivot> failed, factorize(damping * mean));
    if (!failed) return damping;
    if (damping >= kMaxDamping) return NotPositiveDefinite(damping, *failed);
    damping = Raised(damping);
  }
}

absl::StatusOr<DampedFactor> FactorizeDamped(Matrix<double>& gram, int64_t size, double damping,
                                             const ParallelContext& context) {
  std::vector<double> diagonal;
  for (int64_t i = 0; i < size; ++i) diagonal.push_back(gram(i, i));
  LiveDiagonal live = ReplaceDead(diagonal);
  for (const int64_t column : live.dead_columns) {
    // Sums in float16 may flush a small diagonal entry to 0, and not those beside it.
    for (int64_t i = 0; i < size; ++i) gram(i, column) = gram(column, i) = 0;
    gram(column, column) = live.mean;
  }
  InverseFactor factor(gram, size, context);
  SPARSEFW_ASSIGN_OR_RETURN(const double enough, FindDamping(damping, live.mean, [&](double added) {
                              return factor.Factorize(added);
                            }));
  return DampedFactor{enough, std::move(live.dead_columns)};
}

}  // namespace sparsefw::sparsegpt
