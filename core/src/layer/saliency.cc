#include "sparsefw/saliency.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/src/base/number_text.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/select/selection.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

constexpr int64_t kRowGrain = 16;
constexpr int64_t kColumnGrain = 1024;

absl::Status ValidateInputs(ConstMatrixView weights, std::span<const double> gram_diag,
                            const SaliencyOptions& options) {
  if (weights.dtype() == DType::kF64 || weights.dtype() == DType::kBool) {
    return Invalid("DTYPE_UNSUPPORTED", "the dtype of weights must be F32, F16 or BF16; got %s",
                   DTypeName(weights.dtype()));
  }
  if (options.method == SaliencyMethod::kMagnitude) return absl::OkStatus();
  if (std::ssize(gram_diag) != weights.cols()) {
    return Invalid(
        "SHAPE_MISMATCH",
        "the diagonal of gram must have one value per input; got %d for weights [%d, %d]",
        gram_diag.size(), weights.rows(), weights.cols());
  }
  for (size_t col = 0; col < gram_diag.size(); ++col) {
    if (!(gram_diag[col] >= 0)) {
      return Invalid("GRAM_NEGATIVE_DIAGONAL",
                     "the diagonal of gram must be at least 0; got gram[%d, %d]=%g", col, col,
                     gram_diag[col]);
    }
  }
  if (options.method == SaliencyMethod::kRia &&
      !(options.ria_exponent >= 0 && std::isfinite(options.ria_exponent))) {
    return Invalid("OPTION_INVALID", "ria_exponent must be finite and at least 0; got %s",
                   NumberText(options.ria_exponent));
  }
  return absl::OkStatus();
}

// sqrt(G_jj)^a: the factor that all weights of a column share.
std::vector<double> ColumnFactors(std::span<const double> gram_diag, const SaliencyOptions& options,
                                  int64_t cols) {
  if (options.method == SaliencyMethod::kMagnitude) {
    return std::vector<double>(static_cast<size_t>(cols), 1.0);
  }
  std::vector<double> factors(gram_diag.size());
  std::ranges::transform(gram_diag, factors.begin(), [](double value) { return std::sqrt(value); });
  if (options.method != SaliencyMethod::kRia || factors.empty()) return factors;
  // A large exponent would take every small factor to 0: the largest is 1 then.
  double largest = *std::ranges::max_element(factors);
  if (std::pow(largest, options.ria_exponent) >= std::numeric_limits<double>::min()) largest = 1;
  for (double& factor : factors) {
    if (largest > 0) factor = std::pow(factor / largest, options.ria_exponent);
  }
  return factors;
}

// Factors beyond these would take scores of float32 weights out of the range of float32.
constexpr int kLargestExponent = 20;

// Divides all by one power of two, where the largest is not within 2^-20 and 2^20: scores keep
// their order.
void BringIntoRange(std::vector<double>& factors) {
  const auto largest = std::ranges::max_element(factors);
  if (largest == factors.end() || !(*largest > 0)) return;
  const int exponent = std::ilogb(*largest);
  if (std::abs(exponent) <= kLargestExponent) return;
  for (double& factor : factors) factor = std::ldexp(factor, -exponent);
}

// 1 / sum, and 0 for an empty sum.
double Inverse(double sum) { return sum > 0 ? 1 / sum : 0; }

// 1 / sum_k |W_kj|: every column's sum runs down the rows in order.
std::vector<double> InverseColumnSums(ConstMatrixView weights) {
  std::vector<double> inverse(static_cast<size_t>(weights.cols()));
  ParallelFor(weights.cols(), kColumnGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(end - begin));
    double* sums = inverse.data() + begin;
    for (int64_t row = 0; row < weights.rows(); ++row) {
      const std::byte* from =
          weights.row_bytes(row) + static_cast<size_t>(begin) * SizeOf(weights.dtype());
      ConvertToFloat(from, weights.dtype(), values.size(), values.data());
      for (size_t i = 0; i < values.size(); ++i) sums[i] += std::fabs(values[i]);
    }
    for (size_t i = 0; i < values.size(); ++i) sums[i] = Inverse(sums[i]);
  });
  return inverse;
}

// 1 / sum_k |W_ik|
std::vector<double> InverseRowSums(ConstMatrixView weights) {
  std::vector<double> inverse(static_cast<size_t>(weights.rows()));
  ParallelFor(weights.rows(), kRowGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(weights.cols()));
    for (int64_t row = begin; row < end; ++row) {
      ConvertToFloat(weights.row_bytes(row), weights.dtype(), values.size(), values.data());
      double sum = 0;
      for (const float value : values) sum += std::fabs(value);
      inverse[static_cast<size_t>(row)] = Inverse(sum);
    }
  });
  return inverse;
}

absl::Status ValidateScores(ConstMatrixView scores, const Pattern& pattern) {
  SPARSEFW_RETURN_IF_ERROR(ValidatePattern(pattern, scores.rows(), scores.cols()));
  if (scores.dtype() == DType::kF32) return absl::OkStatus();
  return Invalid("DTYPE_UNSUPPORTED", "the dtype of scores must be F32; got %s",
                 DTypeName(scores.dtype()));
}

}  // namespace

absl::StatusOr<SaliencySource> MakeSaliencySource(ConstMatrixView weights,
                                                  std::span<const double> gram_diag,
                                                  const SaliencyOptions& options) {
  SPARSEFW_RETURN_IF_ERROR(ValidateInputs(weights, gram_diag, options));
  SaliencySource::Terms terms;
  terms.factor = ColumnFactors(gram_diag, options, weights.cols());
  // Times a weight of 0 it would be NaN.
  if (const auto wide = std::ranges::find_if_not(
          terms.factor, [](double factor) { return std::isfinite(factor); });
      wide != terms.factor.end()) {
    const auto col = static_cast<size_t>(wide - terms.factor.begin());
    return Invalid(
        "OPTION_INVALID",
        "ria_exponent must be so small that sqrt(gram[j, j]) to its power is finite; got "
        "%s with gram[%d, %d]=%g",
        NumberText(options.ria_exponent), col, col, gram_diag[col]);
  }
  BringIntoRange(terms.factor);
  if (options.method == SaliencyMethod::kRia) {
    terms.row = InverseRowSums(weights);
    terms.column = InverseColumnSums(weights);
  }
  return SaliencySource(weights, std::move(terms));
}

absl::StatusOr<Matrix<float>> ComputeSaliency(ConstMatrixView weights,
                                              std::span<const double> gram_diag,
                                              const SaliencyOptions& options) {
  SPARSEFW_ASSIGN_OR_RETURN(const SaliencySource source,
                            MakeSaliencySource(weights, gram_diag, options));
  return ScoresOf(source);
}

Matrix<float> ScoresOf(const SaliencySource& source) {
  Matrix<float> scores(source.rows(), source.cols());
  ParallelFor(source.rows(), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) source.CopyRow(row, scores.row(row));
  });
  return scores;
}

absl::StatusOr<Mask> TopScores(ConstMatrixView scores, const Pattern& pattern) {
  SPARSEFW_RETURN_IF_ERROR(ValidateScores(scores, pattern));
  return KeepTop(scores, nullptr, GroupsOf(pattern, scores.rows(), scores.cols()));
}

absl::StatusOr<Mask> FixedSet(ConstMatrixView scores, const Mask& warm, const Pattern& pattern,
                              double alpha) {
  SPARSEFW_RETURN_IF_ERROR(ValidateScores(scores, pattern));
  if (warm.rows() != scores.rows() || warm.cols() != scores.cols()) {
    return Invalid("SHAPE_MISMATCH",
                   "the warm-start mask must have the shape of the scores; got [%d, %d] "
                   "for scores [%d, %d]",
                   warm.rows(), warm.cols(), scores.rows(), scores.cols());
  }
  // The negation catches NaN.
  if (!(alpha >= 0 && alpha <= 1)) {
    return Invalid("OPTION_INVALID", "alpha must be in [0, 1]; got %s", NumberText(alpha));
  }
  return KeepTop(scores, &warm, FixedGroups(pattern, scores.rows(), scores.cols(), alpha));
}

Groups FixedGroups(const Pattern& pattern, int64_t rows, int64_t cols, double alpha) {
  Groups groups = GroupsOf(pattern, rows, cols);
  const int64_t kept =
      groups.whole_matrix ? groups.total_kept : groups.capacity * groups.groups_per_row;
  groups.capacity = static_cast<int64_t>(std::floor(alpha * static_cast<double>(kept)));
  groups.total_kept = groups.whole_matrix ? groups.capacity : groups.capacity * rows;
  groups.group_cols = cols;
  groups.groups_per_row = 1;
  return groups;
}

}  // namespace sparsefw
