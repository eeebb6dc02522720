#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/src/reconstruct/reconstruction_rules.h"
#include "core/src/reconstruct/rounded_value.h"
#include "core/src/reference/reference_searches.h"

namespace sparsefw {
namespace {

// A pivot below this is rounding, in a matrix with ones on its diagonal.
constexpr double kRankTolerance = 1e-12;

// The columns are taken in the order of their pivots; the factor replaces the
// lower triangle. Returns the rank; nothing where `stop` ended it.
std::optional<int64_t> Factorise(Matrix<double>& a, std::vector<int64_t>& order,
                                 absl::FunctionRef<bool()> stop) {
  const int64_t n = a.rows();
  std::vector<double> column(static_cast<size_t>(n));  // k, contiguous
  for (int64_t k = 0; k < n; ++k) {
    if (stop()) return std::nullopt;
    int64_t pivot = k;
    for (int64_t j = k + 1; j < n; ++j) {
      if (a(j, j) > a(pivot, pivot)) pivot = j;
    }
    if (a(pivot, pivot) <= kRankTolerance) return k;
    std::swap_ranges(a.row(k), a.row(k) + n, a.row(pivot));
    for (int64_t i = 0; i < n; ++i) std::swap(a(i, k), a(i, pivot));
    std::swap(order[static_cast<size_t>(k)], order[static_cast<size_t>(pivot)]);

    a(k, k) = std::sqrt(a(k, k));
    for (int64_t i = k + 1; i < n; ++i) column[static_cast<size_t>(i)] = a(i, k) /= a(k, k);
    for (int64_t i = k + 1; i < n; ++i) {
      for (int64_t j = k + 1; j < n; ++j) a(i, j) -= a(i, k) * column[static_cast<size_t>(j)];
    }
  }
  return n;
}

// Solves a x = b for a symmetric positive semi-definite [n, n] and b in its
// range; where the rank is lower, the entries of x beyond it are 0. Nothing where
// `stop`, asked n times and more, ended it.
std::optional<std::vector<double>> SolveSemidefinite(Matrix<double> a, std::vector<double> b,
                                                     absl::FunctionRef<bool()> stop) {
  const int64_t n = a.rows();
  // Ones on the diagonal, so that one tolerance fits all; dead columns stay 0.
  std::vector<double> scale(b.size());
  for (int64_t i = 0; i < n; ++i) {
    scale[static_cast<size_t>(i)] = a(i, i) > 0 ? 1 / std::sqrt(a(i, i)) : 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      a(i, j) *= scale[static_cast<size_t>(i)] * scale[static_cast<size_t>(j)];
    }
  }
  std::vector<int64_t> order(b.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const std::optional<int64_t> factorised = Factorise(a, order, stop);
  if (!factorised) return std::nullopt;
  const int64_t rank = *factorised;

  std::vector<double> y(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) {
    const auto column = static_cast<size_t>(order[static_cast<size_t>(i)]);
    double sum = b[column] * scale[column];
    for (int64_t j = 0; j < i; ++j) sum -= a(i, j) * y[static_cast<size_t>(j)];
    y[static_cast<size_t>(i)] = sum / a(i, i);
  }
  std::vector<double> x(b.size());
  for (int64_t i = rank - 1; i >= 0; --i) {
    if (stop()) return std::nullopt;
    double& value = y[static_cast<size_t>(i)];
    for (int64_t j = i + 1; j < rank; ++j) value -= a(j, i) * y[static_cast<size_t>(j)];
    value /= a(i, i);
    const auto column = static_cast<size_t>(order[static_cast<size_t>(i)]);
    x[column] = value * scale[column];
  }
  return x;
}

// Loss of `kept` in a row: D = w - kept.
double LossOfRow(const Matrix<double>& gram, const double* weights, const float* kept) {
  std::vector<double> pruned(static_cast<size_t>(gram.cols()));
  for (size_t i = 0; i < pruned.size(); ++i) pruned[i] = weights[i] - static_cast<double>(kept[i]);
  double loss = 0;
  for (int64_t i = 0; i < gram.rows(); ++i) {
    for (int64_t j = 0; j < gram.cols(); ++j) {
      loss += pruned[static_cast<size_t>(i)] * gram(i, j) * pruned[static_cast<size_t>(j)];
    }
  }
  return loss;
}

double SquaresOfRow(const Matrix<double>& gram, const double* weights, const float* kept) {
  double squares = 0;
  for (int64_t i = 0; i < gram.cols(); ++i) {
    const double missing = weights[i] - static_cast<double>(kept[i]);
    squares += missing * missing * gram(i, i);
  }
  return squares;
}

// The correction of the kept weights of one row; nothing where `stop` ended it.
std::optional<std::vector<double>> CorrectionOf(const Matrix<double>& gram, const double* weights,
                                                const Mask& mask, int64_t row,
                                                const std::vector<int64_t>& kept,
                                                absl::FunctionRef<bool()> stop) {
  const int64_t n = std::ssize(kept);
  Matrix<double> a(n, n);
  std::vector<double> b(kept.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t col = kept[static_cast<size_t>(i)];
    for (int64_t j = 0; j < n; ++j) a(i, j) = gram(col, kept[static_cast<size_t>(j)]);
    for (int64_t j = 0; j < mask.cols(); ++j) {
      if (!mask.Get(row, j)) b[static_cast<size_t>(i)] += weights[j] * gram(col, j);
    }
  }
  return SolveSemidefinite(std::move(a), std::move(b), stop);
}

}  // namespace

Matrix<float> ReferenceReconstruct(const Matrix<double>& weights, const Matrix<double>& gram,
                                   const Mask& mask, DType dtype, DType gram_dtype,
                                   const Matrix<float>* guess, absl::FunctionRef<bool()> stop) {
  Matrix<float> result(mask.rows(), mask.cols());
  for (int64_t row = 0; row < mask.rows(); ++row) {
    std::vector<int64_t> kept;
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (!mask.Get(row, col)) continue;
      kept.push_back(col);
      result(row, col) =
          guess != nullptr ? (*guess)(row, col) : static_cast<float>(weights(row, col));
    }
    if (stop()) continue;
    const std::optional<std::vector<double>> correction =
        CorrectionOf(gram, weights.row(row), mask, row, kept, stop);
    if (!correction) continue;
    std::vector<float> solved(static_cast<size_t>(mask.cols()));
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto col = static_cast<size_t>(kept[i]);
      solved[col] = RoundedTo(dtype, weights(row, kept[i]) + (*correction)[i]);
    }
    const double before = LossOfRow(gram, weights.row(row), result.row(row));
    if (stop()) continue;
    const double after = LossOfRow(gram, weights.row(row), solved.data());
    const double rounding =
        GramRounding(gram_dtype, DType::kF64) * SquaresOfRow(gram, weights.row(row), solved.data());
    if (LosesLess(after, rounding, before)) {
      std::copy(solved.begin(), solved.end(), result.row(row));
    }
  }
  return result;
}

}  // namespace sparsefw
