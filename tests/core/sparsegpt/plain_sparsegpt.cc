#include "tests/core/sparsegpt/plain_sparsegpt.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

namespace sparsefw::testing {
namespace {

using Rows = std::vector<std::vector<double>>;
struct Candidate {
  double score;
  size_t row;
  size_t col;
};

Rows ToRows(const Matrix<double>& matrix) {
  Rows rows;
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    rows.emplace_back(matrix.row(i), matrix.row(i) + matrix.cols());
  }
  return rows;
}

// Lower L with A = L L^T; nothing when A is not positive definite.
std::optional<Rows> Cholesky(Rows a) {
  const size_t n = a.size();
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = j; i < n; ++i) {
      for (size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
    }
    if (!(a[j][j] > 0)) return std::nullopt;
    const double root = std::sqrt(a[j][j]);
    for (size_t i = j; i < n; ++i) a[i][j] /= root;
    std::fill(a[j].begin() + static_cast<std::ptrdiff_t>(j) + 1, a[j].end(), 0.0);
  }
  return a;
}

// A^-1 from L: solves L L^T x = e for every unit vector e.
Rows CholeskyInverse(const Rows& lower) {
  const size_t n = lower.size();
  Rows inverse(n, std::vector<double>(n));
  for (size_t unit = 0; unit < n; ++unit) {
    std::vector<double> x(n);
    x[unit] = 1;
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < i; ++k) x[i] -= lower[i][k] * x[k];
      x[i] /= lower[i][i];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) x[i] -= lower[k][i] * x[k];
      x[i] /= lower[i][i];
    }
    for (size_t i = 0; i < n; ++i) inverse[i][unit] = x[i];
  }
  return inverse;
}

// U with H^-1 = U^T U, and the damping that it took.
Rows UpperFactor(const Rows& gram, double& damping) {
  const size_t n = gram.size();
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += gram[i][i] / static_cast<double>(n);
  std::optional<Rows> lower;
  while (true) {
    Rows h = gram;
    for (size_t i = 0; i < n; ++i) h[i][i] += damping * mean;
    lower = Cholesky(h);
    if (lower) break;
    damping = std::min(1.0, 10 * damping);
  }
  const Rows inverse_lower = *Cholesky(CholeskyInverse(*lower));
  Rows upper(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) upper[i][j] = inverse_lower[j][i];
  }
  return upper;
}

void PruneLowest(std::vector<Candidate> candidates, int64_t count, PlainResult& result) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.score, a.row, a.col) < std::tie(b.score, b.row, b.col);
  });
  for (int64_t i = 0; i < count; ++i) {
    const Candidate& candidate = candidates[static_cast<size_t>(i)];
    result.keep[candidate.row][candidate.col] = false;
  }
}

// Squared weights over squared diagonal of U, of one row.
std::vector<Candidate> Scores(const PlainResult& result, const Rows& upper, size_t row,
                              size_t first, size_t last) {
  std::vector<Candidate> scores;
  for (size_t col = first; col < last; ++col) {
    const double ratio = result.weights[row][col] / upper[col][col];
    scores.push_back({ratio * ratio, row, col});
  }
  return scores;
}

// int() truncates, as in the script.
int64_t PrunedUpTo(size_t count, double sparsity) {
  return static_cast<int64_t>(static_cast<double>(count) * sparsity);
}

void ChooseInBlock(const Rows& upper, const Pattern& pattern, size_t first, size_t last,
                   PlainResult& result) {
  const size_t rows = result.weights.size();
  std::vector<Candidate> all;
  for (size_t row = 0; row < rows; ++row) {
    const std::vector<Candidate> scores = Scores(result, upper, row, first, last);
    all.insert(all.end(), scores.begin(), scores.end());
    if (pattern.kind == Pattern::Kind::kPerRow) {
      PruneLowest(scores, PrunedUpTo(last, pattern.sparsity) - PrunedUpTo(first, pattern.sparsity),
                  result);
    }
  }
  if (pattern.kind == Pattern::Kind::kUnstructured) {
    PruneLowest(
        all, PrunedUpTo(rows * last, pattern.sparsity) - PrunedUpTo(rows * first, pattern.sparsity),
        result);
  }
}

}  // namespace

PlainResult PlainSparseGpt(const Matrix<double>& weights, const Matrix<double>& gram,
                           const Pattern& pattern, double damping, int64_t block) {
  PlainResult result;
  const auto cols = static_cast<size_t>(weights.cols());
  result.weights = ToRows(weights);
  result.keep.assign(result.weights.size(), std::vector<bool>(cols, true));
  result.damping = damping;
  const Rows upper = UpperFactor(ToRows(gram), result.damping);
  const bool groups = pattern.kind == Pattern::Kind::kKeepOfGroup;
  const auto group = static_cast<size_t>(pattern.group);

  for (size_t col = 0; col < cols; ++col) {
    if (col % static_cast<size_t>(block) == 0) {
      ChooseInBlock(upper, pattern, col, std::min(cols, col + static_cast<size_t>(block)), result);
    }
    for (size_t row = 0; row < result.weights.size(); ++row) {
      if (groups && col % group == 0) {
        PruneLowest(Scores(result, upper, row, col, col + group), pattern.group - pattern.keep,
                    result);
      }
      if (result.keep[row][col]) continue;
      std::vector<double>& w = result.weights[row];
      const double error = w[col] / upper[col][col];
      for (size_t k = col; k < cols; ++k) w[k] -= error * upper[col][k];
      w[col] = 0;
    }
  }
  return result;
}

}  // namespace sparsefw::testing
