#include "tests/testing/masks.h"

#include <cassert>
#include <limits>

#include "sparsefw/problem.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::testing {

Mask MaskFromRows(const std::vector<std::string>& rows) {
  Mask mask(std::ssize(rows), rows.empty() ? 0 : std::ssize(rows[0]));
  for (int64_t row = 0; row < mask.rows(); ++row) {
    for (int64_t col = 0; col < mask.cols(); ++col) {
      mask.Set(row, col, rows[static_cast<size_t>(row)][static_cast<size_t>(col)] == '1');
    }
  }
  return mask;
}

std::vector<std::string> RowsOf(const Mask& mask) {
  std::vector<std::string> rows;
  for (int64_t row = 0; row < mask.rows(); ++row) {
    std::string text;
    for (int64_t col = 0; col < mask.cols(); ++col) text += mask.Get(row, col) ? '1' : '0';
    rows.push_back(text);
  }
  return rows;
}

Mask RandomMask(int64_t rows, int64_t cols, Random& random) {
  Mask mask(rows, cols);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) mask.Set(row, col, random.Below(2) == 0);
  }
  return mask;
}

Mask Changed(const Mask& mask, double share, Random& random) {
  Mask changed = mask;
  for (int64_t row = 1; row < mask.rows(); ++row) {
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (random.Uniform() < share) changed.Set(row, col, !mask.Get(row, col));
    }
  }
  return changed;
}

bool IsSubset(const Mask& inner, const Mask& outer) {
  for (int64_t row = 0; row < inner.rows(); ++row) {
    for (int64_t i = 0; i < inner.row_bytes(); ++i) {
      if ((inner.row(row)[i] & ~outer.row(row)[i]) != 0) return false;
    }
  }
  return true;
}

double NaiveLoss(ConstMatrixView weights, ConstMatrixView gram, const Mask& mask) {
  const Matrix<double> w = ToDouble(weights);
  const Matrix<double> g = ToDouble(gram);
  double loss = 0;
  for (int64_t row = 0; row < w.rows(); ++row) {
    for (int64_t i = 0; i < w.cols(); ++i) {
      if (mask.Get(row, i)) continue;
      for (int64_t j = 0; j < w.cols(); ++j) {
        if (!mask.Get(row, j)) loss += w(row, i) * w(row, j) * (g(i, j) + g(j, i)) / 2;
      }
    }
  }
  return loss;
}

BestMask ExhaustiveSearch(ConstMatrixView weights, ConstMatrixView gram, const Pattern& pattern,
                          const Mask* fixed) {
  const int64_t cols = weights.cols();
  const int64_t size = weights.size();
  assert(size <= 20);
  BestMask best{std::numeric_limits<double>::infinity(), Mask()};
  for (uint32_t bits = 0; bits < (1U << size); ++bits) {
    Mask mask(weights.rows(), cols);
    for (int64_t i = 0; i < size; ++i) mask.Set(i / cols, i % cols, ((bits >> i) & 1U) != 0);
    if (fixed != nullptr && !IsSubset(*fixed, mask)) continue;
    if (!ValidateMaskCounts(mask, pattern, "mask").ok()) continue;
    const double loss = NaiveLoss(weights, gram, mask);
    if (loss < best.loss) best = {loss, mask};
  }
  return best;
}

}  // namespace sparsefw::testing
