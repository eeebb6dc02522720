#include "core/src/cpu/reconstruct/nystrom_preconditioner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/statusor.h"
#include "core/src/linalg/blas.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// More directions cost more for every row, fewer leave more iterations: docs/adr/0036.
constexpr int64_t kRank = 64;
constexpr int kPowerSteps = 2;
constexpr int64_t kRowsOfTask = 16;
constexpr int64_t kKeptAtOnce = 256;  // rows of U
// A direction that those before it span to within this share of its square is left out.
constexpr double kDependent = 1e-10;
// Share of the mean diagonal: keeps a factor of float32 products positive.
constexpr double kShift = 1e-7;
// The least mu, of a diagonal of ones: where G has no more than kRank directions.
constexpr double kLeastMu = 1e-3;

int64_t RankOf(int64_t cols) { return std::min(kRank, cols / 4); }

int64_t FactorSize(int64_t rank) { return rank * (rank + 1) / 2; }

// A small square matrix in float64.
struct Square {
  explicit Square(int64_t n) : size(n), values(static_cast<size_t>(n * n)) {}
  double& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * size + j)]; }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * size + j)];
  }
  int64_t size;
  std::vector<double> values;
};

// Rows of a loop's block: sums over blocks do not depend on the number of threads.
constexpr int64_t kRowsOfSum = 128;

// a^T b of matrices [rows, rank].
template <typename Real>
absl::StatusOr<Square> CrossProduct(const Matrix<Real>& a, const Matrix<Real>& b, int64_t rank,
                                    const ParallelContext& context) {
  const RowBlocks blocks{a.rows(), kRowsOfSum};
  std::vector<Square> parts(static_cast<size_t>(blocks.count()), Square(rank));
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    Square& part = parts[static_cast<size_t>(block)];
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      for (int64_t i = 0; i < rank; ++i) {
        const auto factor = static_cast<double>(a(row, i));
        for (int64_t j = 0; j < rank; ++j) part(i, j) += factor * static_cast<double>(b(row, j));
      }
    }
  }));
  Square sum(rank);
  for (const Square& part : parts) {
    for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += part.values[i];
  }
  return sum;
}

// The lower factor L of a symmetric matrix, its diagonal inverted; 0 there for directions that
// depend on those before them.
void Factorize(Square& a) {
  for (int64_t i = 0; i < a.size; ++i) {
    const double diagonal = a(i, i);
    for (int64_t j = 0; j <= i; ++j) {
      double sum = a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= a(i, k) * a(j, k);
      if (j < i) {
        a(i, j) = sum * a(j, j);
      } else {
        a(i, i) = sum > kDependent * diagonal ? 1 / std::sqrt(sum) : 0;
      }
    }
  }
}

// Rows y := y L^-T.
template <typename Real>
absl::Status SolveRows(const Square& l, Matrix<Real>& y, const ParallelContext& context) {
  const RowBlocks blocks{y.rows(), kRowsOfSum};
  return context.ForEach(blocks.count(), [&](int64_t block) {
    std::vector<double> solved(static_cast<size_t>(l.size));
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      for (int64_t i = 0; i < l.size; ++i) {
        double sum = static_cast<double>(y(row, i));
        for (int64_t k = 0; k < i; ++k) sum -= l(i, k) * solved[static_cast<size_t>(k)];
        solved[static_cast<size_t>(i)] = sum * l(i, i);
        y(row, i) = static_cast<Real>(solved[static_cast<size_t>(i)]);
      }
    }
  });
}

// The same numbers on every machine, between -1 and 1: splitmix64 (Steele, Lea, Flood 2014).
template <typename Real>
void FillWithNoise(Matrix<Real>& out) {
  uint64_t state = 0;
  for (int64_t i = 0; i < out.size(); ++i) {
    state += 0x9E3779B97F4A7C15U;
    uint64_t bits = state;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
    bits ^= bits >> 31;
    out.data()[i] = static_cast<Real>(static_cast<double>(bits >> 11) * 0x1p-52 - 1);
  }
}

// L L^T x = t, the lower L by rows with its diagonal inverted.
template <typename Real>
void SolveFactor(const Real* l, int64_t size, Real* t) {
  const auto row = [&](int64_t i) { return l + FactorSize(i); };
  for (int64_t i = 0; i < size; ++i) {
    Real sum = t[i];
    for (int64_t k = 0; k < i; ++k) sum -= row(i)[k] * t[k];
    t[i] = sum * row(i)[i];
  }
  for (int64_t i = size - 1; i >= 0; --i) {
    t[i] *= row(i)[i];
    for (int64_t k = 0; k < i; ++k) t[k] -= row(i)[k] * t[i];
  }
}

}  // namespace

template <typename Real>
NystromPreconditioner<Real>::NystromPreconditioner(const Matrix<Real>& gram, const Mask& mask,
                                                   int64_t first_row, int64_t rows)
    : gram_(gram),
      cols_(mask.cols()),
      mask_(mask),
      first_row_(first_row),
      rank_(RankOf(mask.cols())),
      scale_(static_cast<size_t>(mask.cols())),
      diagonal_(static_cast<size_t>(gram.cols())),
      right_(mask.cols(), rank_),
      left_(rank_, gram.cols()),
      row_factors_(rows, FactorSize(rank_)),
      coefficients_(rows, rank_) {}

template <typename Real>
absl::Status NystromPreconditioner<Real>::Prepare(const ParallelContext& context) {
  // 1 / (mu G_jj) must be finite; less of an input than that is as good as none.
  const Real least = std::numeric_limits<Real>::min() / static_cast<Real>(kLeastMu * kLeastMu);
  for (int64_t j = 0; j < cols_; ++j) {
    const Real diagonal = gram_(j, j);
    scale_[static_cast<size_t>(j)] = diagonal > least ? 1 / std::sqrt(diagonal) : 0;
  }
  if (rank_ > 0) SPARSEFW_RETURN_IF_ERROR(FindFactor(context));
  for (int64_t j = 0; j < cols_; ++j) {
    const Real s = scale_[static_cast<size_t>(j)];
    diagonal_[static_cast<size_t>(j)] = s * s / static_cast<Real>(mu_);
  }
  const RowBlocks blocks{row_factors_.rows(), kRowsOfTask};
  return context.ForEach(rank_ > 0 ? blocks.count() : 0, [&](int64_t block) {
    std::vector<Real> kept(static_cast<size_t>(kKeptAtOnce * rank_));
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) FactorRow(row, kept);
  });
}

template <typename Real>
absl::Status NystromPreconditioner<Real>::FindFactor(const ParallelContext& context) {
  Matrix<Real> q(cols_, rank_);
  Matrix<Real> y(cols_, rank_);
  FillWithNoise(y);
  for (int step = 0; step <= kPowerSteps; ++step) {
    std::copy_n(y.data(), y.size(), q.data());
    SPARSEFW_ASSIGN_OR_RETURN(Square square, CrossProduct(y, y, rank_, context));
    Factorize(square);
    SPARSEFW_RETURN_IF_ERROR(SolveRows(square, q, context));
    SPARSEFW_RETURN_IF_ERROR(MultiplyNormalised(q, y, context));
  }
  SPARSEFW_ASSIGN_OR_RETURN(Square inner, CrossProduct(q, y, rank_, context));
  double trace = 0;
  for (int64_t i = 0; i < rank_; ++i) trace += inner(i, i);
  for (int64_t i = 0; i < rank_; ++i) {
    for (int64_t j = 0; j < i; ++j) inner(i, j) = (inner(i, j) + inner(j, i)) / 2;
    inner(i, i) += kShift * trace / static_cast<double>(rank_);
  }
  Factorize(inner);
  SPARSEFW_RETURN_IF_ERROR(SolveRows(inner, y, context));
  TakeFactor(y);
  return absl::OkStatus();
}

// y := N q.
template <typename Real>
absl::Status NystromPreconditioner<Real>::MultiplyNormalised(const Matrix<Real>& q, Matrix<Real>& y,
                                                             const ParallelContext& context) {
  Matrix<Real> scaled(cols_, rank_);
  for (int64_t j = 0; j < cols_; ++j) {
    for (int64_t i = 0; i < rank_; ++i) scaled(j, i) = scale_[static_cast<size_t>(j)] * q(j, i);
  }
  SPARSEFW_RETURN_IF_ERROR(Gemm<Real>({cols_, rank_, cols_}, gram_, scaled, y, context));
  for (int64_t j = 0; j < cols_; ++j) {
    for (int64_t i = 0; i < rank_; ++i) y(j, i) *= scale_[static_cast<size_t>(j)];
  }
  return absl::OkStatus();
}

template <typename Real>
void NystromPreconditioner<Real>::TakeFactor(const Matrix<Real>& u) {
  double live = 0;
  double squares = 0;
  for (int64_t j = 0; j < cols_; ++j) {
    live += scale_[static_cast<size_t>(j)] > 0 ? 1 : 0;
    for (int64_t i = 0; i < rank_; ++i) {
      squares += static_cast<double>(u(j, i)) * static_cast<double>(u(j, i));
    }
  }
  if (live > 0) mu_ = std::max((live - squares) / live, kLeastMu);
  const double unit = 1 / std::sqrt(mu_);
  for (int64_t j = 0; j < cols_; ++j) {
    const double factor = unit * static_cast<double>(scale_[static_cast<size_t>(j)]);
    for (int64_t i = 0; i < rank_; ++i) {
      const double value = factor * static_cast<double>(u(j, i));
      right_(j, i) = static_cast<Real>(value);
      left_(i, j) = static_cast<Real>(value / mu_);
    }
  }
}

template <typename Real>
void NystromPreconditioner<Real>::FactorRow(int64_t row, std::vector<Real>& kept) {
  std::vector<Real> square(static_cast<size_t>(rank_ * rank_));
  for (int64_t i = 0; i < rank_; ++i) square[static_cast<size_t>(i * rank_ + i)] = 1;
  int64_t count = 0;
  const auto add = [&] {
    serial::AddLowerSquare<Real>(count, rank_, kept.data(), square.data());
    count = 0;
  };
  for (int64_t j = 0; j < cols_; ++j) {
    const Real s = scale_[static_cast<size_t>(j)];
    if (!(s > 0) || !mask_.Get(first_row_ + row, j)) continue;
    const Real* from = right_.row(j);
    Real* to = kept.data() + count * rank_;
    for (int64_t i = 0; i < rank_; ++i) to[i] = from[i] / s;
    if (++count == kKeptAtOnce) add();
  }
  add();
  Real* l = RowFactor(row);
  for (int64_t i = 0; i < rank_; ++i) {
    Real* to = l + FactorSize(i);
    for (int64_t j = 0; j <= i; ++j) {
      const Real* other = l + FactorSize(j);
      Real sum = square[static_cast<size_t>(i * rank_ + j)];
      for (int64_t k = 0; k < j; ++k) sum -= to[k] * other[k];
      // Every eigenvalue is 1 or more.
      to[j] = j < i ? sum * other[j] : 1 / std::sqrt(std::max(sum, Real(0.5)));
    }
  }
}

template <typename Real>
absl::Status NystromPreconditioner<Real>::Apply(const Matrix<Real>& residual,
                                                std::span<const int64_t> rows, Matrix<Real>& out,
                                                const ParallelContext& context) {
  const int64_t count = std::ssize(rows);
  if (rank_ == 0) {
    for (int64_t i = 0; i < count; ++i) std::fill_n(out.row(i), cols_, Real(0));
    return absl::OkStatus();
  }
  SPARSEFW_RETURN_IF_ERROR(
      Gemm<Real>({count, rank_, cols_}, residual, right_, coefficients_, context));
  SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({count, kRowsOfTask}, [&](int64_t i) {
    SolveFactor(RowFactor(rows[static_cast<size_t>(i)]), rank_, coefficients_.row(i));
  }));
  return Gemm<Real>({count, gram_.cols(), rank_}, coefficients_, left_, out, context);
}

int64_t NystromPreconditionerBytes(int64_t rows, int64_t cols, int64_t size) {
  const int64_t rank = RankOf(cols);
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t kept = size * (5 * rank * stride + rows * (FactorSize(rank) + rank) + 2 * stride);
  const int64_t sums = 8 * rank * rank * ((cols + kRowsOfSum - 1) / kRowsOfSum + 3);
  // A bound on the threads: no machine that we know has more.
  const int64_t tasks = std::min<int64_t>((rows + kRowsOfTask - 1) / kRowsOfTask, 64);
  return kept + sums + tasks * size * rank * (kKeptAtOnce + rank);
}

template class NystromPreconditioner<float>;
template class NystromPreconditioner<double>;

}  // namespace sparsefw::cpu
