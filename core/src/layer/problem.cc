#include "sparsefw/problem.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mutex.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

absl::Status ValidateDType(ConstMatrixView matrix, std::string_view name,
                           std::initializer_list<DType> allowed) {
  std::string names;
  for (const DType dtype : allowed) {
    if (dtype == matrix.dtype()) return absl::OkStatus();
    names += (names.empty() ? "" : ", ") + std::string(DTypeName(dtype));
  }
  return Invalid("DTYPE_UNSUPPORTED", "the dtype of %s must be one of %s; got %s", name, names,
                 DTypeName(matrix.dtype()));
}

absl::Status ValidateShape(ConstMatrixView matrix, std::string_view name) {
  if (matrix.empty() || matrix.rows() < 1 || matrix.cols() < 1) {
    return Invalid("SHAPE_MISMATCH", "%s must have at least one row and one column; got [%d, %d]",
                   name, matrix.rows(), matrix.cols());
  }
  if (matrix.stride() < matrix.cols() ||
      matrix.rows() > std::numeric_limits<int64_t>::max() / 8 / matrix.stride()) {
    return Invalid("SHAPE_MISMATCH",
                   "the stride of %s must be at least cols and rows*stride fit in "
                   "memory; got [%d, %d] with stride %d",
                   name, matrix.rows(), matrix.cols(), matrix.stride());
  }
  return absl::OkStatus();
}

absl::Status ValidateSameShape(int64_t rows, int64_t cols, ConstMatrixView weights,
                               std::string_view name) {
  if (rows == weights.rows() && cols == weights.cols()) return absl::OkStatus();
  return Invalid("SHAPE_MISMATCH", "%s must be [%d, %d], the shape of weights; got [%d, %d]", name,
                 weights.rows(), weights.cols(), rows, cols);
}

// Share of the largest value of G.
constexpr double kAsymmetryTolerance = 1e-3;

// See ValidateProblem. The factor: entries that are each off by e sqrt(G_ii G_jj)
// exceed sqrt(G_ii G_jj) by at most (1 + e)/(1 - e), and e = 1/9 is the worst
// that 1.8 million additions in float32 do; sums in bfloat16 stay below it too.
// The floor, of the largest G_jj: sums in float16 flush small diagonal entries
// to 0, but not what stands beside them. It covers the allowed asymmetry.
constexpr double kCauchySchwarzFactor = 1.25;
constexpr double kDiagonalFloor = 1e-3;

// Result of the first pass over G; a second pass locates an error.
struct GramSummary {
  double max_abs = 0;
  double max_difference = 0;  // of |G_ij - G_ji|
  double max_excess = 0;      // of |G_ij| above its bound
  bool finite = true;

  void Merge(const GramSummary& other) {
    max_abs = std::max(max_abs, other.max_abs);
    max_difference = std::max(max_difference, other.max_difference);
    max_excess = std::max(max_excess, other.max_excess);
    finite = finite && other.finite;
  }
};

constexpr int64_t kGramTile = 64;  // a tile and its mirror image fit in L1

// sqrt(G_jj + floor) for every j.
std::vector<double> RootsOfDiagonal(ConstMatrixView gram) {
  std::vector<double> roots(static_cast<size_t>(gram.rows()));
  double largest = 0;
  for (int64_t j = 0; j < gram.rows(); ++j) {
    const double value = std::max(0.0, ValueAt(gram, j, j));
    roots[static_cast<size_t>(j)] = value;
    largest = std::max(largest, value);
  }
  for (double& root : roots) root = std::sqrt(root + kDiagonalFloor * largest);
  return roots;
}

template <typename T>
GramSummary SummarizeTile(ConstMatrixView gram, const double* roots, int64_t first_row,
                          int64_t first_col) {
  GramSummary summary;
  const int64_t last_row = std::min(gram.rows(), first_row + kGramTile);
  const int64_t last_col = std::min(gram.cols(), first_col + kGramTile);
  // A sum of v*0 is 0 unless one v is NaN or infinite.
  double poison = 0;
  for (int64_t j = first_col; j < last_col; ++j) {
    const T* mirror = gram.row<T>(j);
    const double bound = kCauchySchwarzFactor * roots[j];
    for (int64_t i = first_row; i < last_row; ++i) {
      const auto upper = static_cast<double>(gram.row<T>(i)[j]);
      const auto lower = static_cast<double>(mirror[i]);
      poison += (upper + lower) * 0.0;
      const double largest = std::max(std::fabs(upper), std::fabs(lower));
      summary.max_abs = std::max(summary.max_abs, largest);
      summary.max_excess = std::max(summary.max_excess, largest - bound * roots[i]);
      summary.max_difference = std::max(summary.max_difference, std::fabs(upper - lower));
    }
  }
  summary.finite = poison == 0;
  return summary;
}

template <typename T>
GramSummary SummarizeGram(ConstMatrixView gram, const std::vector<double>& roots) {
  Mutex mutex;
  GramSummary total;
  ParallelFor(gram.rows(), kGramTile, [&](int64_t begin, int64_t) {
    GramSummary summary;
    for (int64_t col = begin; col < gram.cols(); col += kGramTile) {
      summary.Merge(SummarizeTile<T>(gram, roots.data(), begin, col));
    }
    const MutexLock lock(mutex);
    total.Merge(summary);
  });
  return total;
}

absl::Status AsymmetryError(ConstMatrixView gram, double tolerance) {
  for (int64_t i = 0; i < gram.rows(); ++i) {
    for (int64_t j = i + 1; j < gram.cols(); ++j) {
      const double upper = ValueAt(gram, i, j);
      const double lower = ValueAt(gram, j, i);
      if (!(std::fabs(upper - lower) > tolerance)) continue;
      return Invalid("GRAM_ASYMMETRIC",
                     "gram must be symmetric to 1e-3 of its largest value (%g); got "
                     "gram[%d, %d]=%g and gram[%d, %d]=%g",
                     tolerance, i, j, upper, j, i, lower);
    }
  }
  return absl::OkStatus();
}

absl::Status IndefiniteError(ConstMatrixView gram, const std::vector<double>& roots) {
  for (int64_t i = 0; i < gram.rows(); ++i) {
    for (int64_t j = 0; j < gram.cols(); ++j) {
      const double value = ValueAt(gram, i, j);
      const double bound =
          kCauchySchwarzFactor * roots[static_cast<size_t>(j)] * roots[static_cast<size_t>(i)];
      if (!(std::fabs(value) > bound)) continue;
      return Invalid("GRAM_NOT_POSITIVE_DEFINITE",
                     "gram must be positive semi-definite, so "
                     "|gram[i, j]| <= sqrt(gram[i, i] * gram[j, j]); got "
                     "gram[%d, %d]=%g, gram[%d, %d]=%g and gram[%d, %d]=%g",
                     i, j, value, i, i, ValueAt(gram, i, i), j, j, ValueAt(gram, j, j));
    }
  }
  return absl::OkStatus();
}

// The first group of the row whose count is wrong; -1 when there is none.
int64_t WrongGroup(const Mask& mask, int64_t row, const Groups& groups) {
  if (groups.groups_per_row == 1) {
    return mask.CountKeptInRow(row) == groups.capacity ? -1 : 0;
  }
  for (int64_t group = 0; group < groups.groups_per_row; ++group) {
    const int64_t first = group * groups.group_cols;
    if (mask.CountKeptIn(row, first, groups.group_cols) != groups.capacity) return group;
  }
  return -1;
}

}  // namespace

absl::Status ValidateFinite(ConstMatrixView matrix, std::string_view name) {
  SPARSEFW_RETURN_IF_ERROR(
      ValidateDType(matrix, name, {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}));
  const std::optional<NonFinite> found = FindNonFinite(matrix);
  if (!found) return absl::OkStatus();
  return Invalid("NON_FINITE", "%s must be finite; got %s[%d, %d]=%g", name, name, found->row,
                 found->col, found->value);
}

absl::Status ValidateGram(ConstMatrixView gram) {
  SPARSEFW_RETURN_IF_ERROR(ValidateShape(gram, "gram"));
  if (gram.rows() != gram.cols()) {
    return Invalid("SHAPE_MISMATCH", "gram must be square; got [%d, %d]", gram.rows(), gram.cols());
  }
  SPARSEFW_RETURN_IF_ERROR(ValidateDType(gram, "gram", {DType::kF32, DType::kF64}));
  const std::vector<double> roots = RootsOfDiagonal(gram);
  const GramSummary summary = gram.dtype() == DType::kF32 ? SummarizeGram<float>(gram, roots)
                                                          : SummarizeGram<double>(gram, roots);
  if (!summary.finite) SPARSEFW_RETURN_IF_ERROR(ValidateFinite(gram, "gram"));
  for (int64_t i = 0; i < gram.rows(); ++i) {
    const double value = ValueAt(gram, i, i);
    if (value < 0) {
      return Invalid("GRAM_NEGATIVE_DIAGONAL",
                     "the diagonal of gram must be at least 0; got gram[%d, %d]=%g", i, i, value);
    }
  }
  const double asymmetry = kAsymmetryTolerance * summary.max_abs;
  if (summary.max_difference > asymmetry) return AsymmetryError(gram, asymmetry);
  return summary.max_excess > 0 ? IndefiniteError(gram, roots) : absl::OkStatus();
}

absl::Status ValidateMaskCounts(const Mask& mask, const Pattern& pattern, std::string_view name) {
  SPARSEFW_RETURN_IF_ERROR(ValidatePattern(pattern, mask.rows(), mask.cols()));
  const Groups groups = GroupsOf(pattern, mask.rows(), mask.cols());
  if (groups.whole_matrix) {
    const int64_t kept = mask.CountKept();
    if (kept == groups.capacity) return absl::OkStatus();
    return Invalid("WARM_MASK_COUNT", "%s must keep %d of %d weights; got %d", name,
                   groups.capacity, mask.rows() * mask.cols(), kept);
  }
  LowestIndex lowest;
  ParallelFor(mask.rows(), RowGrain(mask.cols()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t group = WrongGroup(mask, row, groups);
      if (group >= 0) return lowest.Offer(row * groups.groups_per_row + group);
    }
  });
  const std::optional<int64_t> wrong = lowest.Get();
  if (!wrong) return absl::OkStatus();
  const int64_t row = *wrong / groups.groups_per_row;
  const int64_t first = *wrong % groups.groups_per_row * groups.group_cols;
  return Invalid("WARM_MASK_COUNT", "%s must keep %d of columns [%d, %d) in row %d; got %d", name,
                 groups.capacity, first, first + groups.group_cols, row,
                 mask.CountKeptIn(row, first, groups.group_cols));
}

absl::Status ValidateProblem(const Problem& problem) {
  const ConstMatrixView& weights = problem.weights;
  // The cheapest checks first.
  SPARSEFW_RETURN_IF_ERROR(ValidateShape(weights, "weights"));
  SPARSEFW_RETURN_IF_ERROR(ValidateShape(problem.gram, "gram"));
  if (problem.gram.rows() != weights.cols() || problem.gram.cols() != weights.cols()) {
    return Invalid("SHAPE_MISMATCH",
                   "gram must be [%d, %d], d_in of weights [%d, %d]; got [%d, %d]", weights.cols(),
                   weights.cols(), weights.rows(), weights.cols(), problem.gram.rows(),
                   problem.gram.cols());
  }
  const bool own_saliency = !problem.saliency.empty();
  if (own_saliency) {
    SPARSEFW_RETURN_IF_ERROR(ValidateShape(problem.saliency, "saliency"));
    SPARSEFW_RETURN_IF_ERROR(
        ValidateSameShape(problem.saliency.rows(), problem.saliency.cols(), weights, "saliency"));
    SPARSEFW_RETURN_IF_ERROR(ValidateDType(problem.saliency, "saliency", {DType::kF32}));
  }
  if (problem.warm_mask != nullptr) {
    SPARSEFW_RETURN_IF_ERROR(ValidateSameShape(problem.warm_mask->rows(), problem.warm_mask->cols(),
                                               weights, "warm_mask"));
  }
  SPARSEFW_RETURN_IF_ERROR(
      ValidateDType(weights, "weights", {DType::kF32, DType::kF16, DType::kBF16}));
  SPARSEFW_RETURN_IF_ERROR(ValidatePattern(problem.pattern, weights.rows(), weights.cols()));

  SPARSEFW_RETURN_IF_ERROR(ValidateDType(problem.gram, "gram", {DType::kF32, DType::kF64}));
  if (!problem.values_checked) {
    SPARSEFW_RETURN_IF_ERROR(ValidateFinite(weights, "weights"));
    SPARSEFW_RETURN_IF_ERROR(ValidateGram(problem.gram));
    if (own_saliency) SPARSEFW_RETURN_IF_ERROR(ValidateFinite(problem.saliency, "saliency"));
  }
  if (problem.warm_mask == nullptr) return absl::OkStatus();
  return ValidateMaskCounts(*problem.warm_mask, problem.pattern, "warm_mask");
}

}  // namespace sparsefw
