#include "core/src/solver/shrunk_gram.h"

#include <algorithm>
#include <vector>

#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw {
namespace {

constexpr int64_t kRowsOfBlock = 64;

template <typename Real>
Matrix<Real> Shrink(ConstMatrixView gram, double shrinkage) {
  const int64_t size = gram.rows();
  Matrix<Real> shrunk(size, size);
  const double factor = 1 - shrinkage;  // rounded once, with the product
  ParallelFor(size, kRowsOfBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Real* from = gram.row<Real>(i);
      Real* to = shrunk.row(i);
      for (int64_t j = 0; j < size; ++j) to[j] = static_cast<Real>(factor * from[j]);
      to[i] = from[i];
    }
  });
  return shrunk;
}

// sum_j (w_j - w'_j)^2 G_jj of one row.
double DiagonalLoss(const float* given, const Mask& mask, const Matrix<float>& new_weights,
                    int64_t row, const std::vector<double>& diagonal) {
  double sum = 0;
  for (int64_t col = 0; col < mask.cols(); ++col) {
    double missing = given[col];
    if (new_weights.size() > 0) {
      missing -= static_cast<double>(new_weights(row, col));
    } else if (mask.Get(row, col)) {
      continue;
    }
    sum += missing * missing * diagonal[static_cast<size_t>(col)];
  }
  return sum;
}

}  // namespace

ShrunkGram::ShrunkGram(ConstMatrixView gram, double shrinkage) {
  if (gram.dtype() == DType::kF64) {
    values_ = Shrink<double>(gram, shrinkage);
  } else {
    values_ = Shrink<float>(gram, shrinkage);
  }
}

double UnshrunkLoss(double loss, double shrinkage, ConstMatrixView weights, ConstMatrixView gram,
                    const Mask& mask, const Matrix<float>& new_weights) {
  const std::vector<double> diagonal = DiagonalOf(gram);
  std::vector<double> sums(static_cast<size_t>((mask.rows() + kRowsOfBlock - 1) / kRowsOfBlock));
  ParallelFor(mask.rows(), kRowsOfBlock, [&](int64_t begin, int64_t end) {
    std::vector<float> given(static_cast<size_t>(mask.cols()));
    double sum = 0;
    for (int64_t row = begin; row < end; ++row) {
      ConvertToFloat(weights.row_bytes(row), weights.dtype(), given.size(), given.data());
      sum += DiagonalLoss(given.data(), mask, new_weights, row, diagonal);
    }
    sums[static_cast<size_t>(begin / kRowsOfBlock)] = sum;
  });
  double diagonal_loss = 0;
  for (const double sum : sums) diagonal_loss += sum;
  return std::max(0.0, (loss - shrinkage * diagonal_loss) / (1 - shrinkage));
}

}  // namespace sparsefw
