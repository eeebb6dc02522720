#include "core/src/cpu/joint/tableau.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/src/linalg/serial_blas.h"

namespace sparsefw::cpu {
namespace {

// Rows a multiple of 4 KiB apart would share a few sets of the cache.
template <typename Real>
int64_t StrideOf(int64_t size) {
  constexpr int64_t kLine = 64 / sizeof(Real);
  const int64_t stride = (size + kLine - 1) / kLine * kLine;
  return stride % (1024 / static_cast<int64_t>(sizeof(Real))) == 0 ? stride + kLine : stride;
}

template <typename Real>
double SquareSum(const Real* values, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

}  // namespace

template <typename Real>
Tableau<Real>::Tableau(const Matrix<Real>& gram, int64_t cols)
    : gram_(gram),
      cols_(cols),
      factor_(cols, StrideOf<Real>(cols)),
      panel_(cols, StrideOf<Real>(cols + kRoom + kKernelSlack)),
      matrix_(cols + kRoom, StrideOf<Real>(cols + kRoom + kKernelSlack)),
      pending_(kPending, StrideOf<Real>(cols + kRoom + kKernelSlack)),
      scaled_(kPending, StrideOf<Real>(cols + kRoom + kKernelSlack)),
      inverse_(cols, StrideOf<Real>(cols)),
      pending_factor_(kPending) {}

template <typename Real>
void Tableau<Real>::Layout(std::span<const int32_t> fixed, int64_t positions) {
  fixed_.assign(fixed.begin(), fixed.end());
  size_ = positions;
  stride_ = StrideOf<Real>(positions + kRoom + kKernelSlack);
  pending_count_ = 0;
  columns_.resize(Index(positions + kRoom));
  const auto room = Index(stride_);
  inside_.assign(room, 0);
  target_.assign(room, 0);
  diagonal_.assign(room, 0);
  floor_.assign(room, std::numeric_limits<Real>::infinity());
  fixed_target_.resize(fixed.size());
}

template <typename Real>
void Tableau<Real>::Build(const double* products, double energy, std::span<const int32_t> fixed,
                          std::span<const int32_t> kept, std::span<const int32_t> outside) {
  Layout(fixed, std::ssize(kept) + std::ssize(outside));
  std::copy(kept.begin(), kept.end(), columns_.begin());
  std::copy(outside.begin(), outside.end(), columns_.begin() + std::ssize(kept));
  for (int64_t i = 0; i < size_; ++i) {
    const Real* from = gram_.row(column(i));
    Real* to = matrix_.data() + i * stride_;
    for (int64_t j = 0; j <= i; ++j) to[j] = from[columns_[Index(j)]];
    target_[Index(i)] = static_cast<Real>(products[column(i)]);
  }
  loss_ = energy;
  EliminateFixed(products);
  SweepKept(std::ssize(kept));
  for (int64_t i = 0; i < size_; ++i) {
    inside_[Index(i)] = i < std::ssize(kept) ? 1 : 0;
    diagonal_[Index(i)] = matrix_.data()[i * stride_ + i];
    SetFloor(i);
  }
  Mirror();
}

// A := H_CC - Y^T Y and target := b_C - Y^T y, with Y and y of the factor.
template <typename Real>
void Tableau<Real>::EliminateFixed(const double* products) {
  const int64_t count = std::ssize(fixed_);
  if (count == 0) return;
  const int64_t factor_stride = StrideOf<Real>(count);
  std::vector<Real> diagonal(fixed_.size());
  for (int64_t i = 0; i < count; ++i) {
    const Real* from = gram_.row(fixed_[Index(i)]);
    Real* to = factor_.data() + i * factor_stride;
    for (int64_t j = 0; j <= i; ++j) to[j] = from[fixed_[Index(j)]];
    Real* panel = panel_.data() + i * stride_;
    for (int64_t j = 0; j < size_; ++j) panel[j] = from[columns_[Index(j)]];
    diagonal[Index(i)] = to[i];
    fixed_target_[Index(i)] = static_cast<Real>(products[fixed_[Index(i)]]);
  }
  serial::Factorize(factor_.data(), count, factor_stride, diagonal.data(), kPivotFloor<Real>);
  const serial::Lower<Real> lower = {count, factor_.data(), factor_stride};
  serial::SolveLeft(lower, size_, panel_.data(), stride_);
  serial::SolveVector(lower, /*transpose=*/false, fixed_target_.data());
  serial::AddSquare<Real>({.transpose = true,
                           .size = size_,
                           .depth = count,
                           .alpha = -1,
                           .a = panel_.data(),
                           .a_stride = stride_,
                           .c = matrix_.data(),
                           .c_stride = stride_});
  serial::AddProduct<Real>(/*transpose=*/true, count, size_, -1, panel_.data(), stride_,
                           fixed_target_.data(), target_.data());
  loss_ -= SquareSum(fixed_target_.data(), count);
}

// All of the kept columns at once. Z^T = A_OK L^-T; A_OO -= Z^T Z; A_OK := Z^T L^-1;
// A_KK := -L^-T L^-1, L the factor of A_KK.
template <typename Real>
void Tableau<Real>::SweepKept(int64_t kept) {
  if (kept == 0) return;
  Real* a = matrix_.data();
  Real* below = a + kept * stride_;
  const int64_t outside = size_ - kept;
  std::vector<Real> diagonal(Index(kept));
  for (int64_t i = 0; i < kept; ++i) diagonal[Index(i)] = gram_(column(i), column(i));
  serial::Factorize(a, kept, stride_, diagonal.data(), kPivotFloor<Real>);
  const serial::Lower<Real> lower = {kept, a, stride_};
  serial::SolveRight(lower, /*transpose=*/true, outside, below, stride_);
  serial::AddSquare<Real>({.size = outside,
                           .depth = kept,
                           .alpha = -1,
                           .a = below,
                           .a_stride = stride_,
                           .c = below + kept,
                           .c_stride = stride_});
  serial::SolveVector(lower, /*transpose=*/false, target_.data());
  serial::AddProduct<Real>(/*transpose=*/false, outside, kept, -1, below, stride_, target_.data(),
                           target_.data() + kept);
  loss_ -= SquareSum(target_.data(), kept);
  serial::SolveVector(lower, /*transpose=*/true, target_.data());
  serial::SolveRight(lower, /*transpose=*/false, outside, below, stride_);

  const int64_t inverse_stride = StrideOf<Real>(kept);
  for (int64_t i = 0; i < kept; ++i) {
    Real* row = inverse_.data() + i * inverse_stride;
    std::fill_n(row, kept, Real(0));
    row[i] = 1;
  }
  serial::SolveLeft(lower, kept, inverse_.data(), inverse_stride);
  serial::AddSquare<Real>({.transpose = true,
                           .size = kept,
                           .depth = kept,
                           .alpha = -1,
                           .a = inverse_.data(),
                           .a_stride = inverse_stride,
                           .beta = 0,
                           .c = a,
                           .c_stride = stride_});
}

// The lower triangle onto the upper, in tiles that fit the cache both ways.
template <typename Real>
void Tableau<Real>::Mirror() {
  constexpr int64_t kTile = 32;
  Real* a = matrix_.data();
  for (int64_t first = 0; first < size_; first += kTile) {
    const int64_t end = std::min(first + kTile, size_);
    for (int64_t left = 0; left <= first; left += kTile) {
      for (int64_t i = first; i < end; ++i) {
        const int64_t stop = std::min(left + kTile, i);
        for (int64_t j = left; j < stop; ++j) a[j * stride_ + i] = a[i * stride_ + j];
      }
    }
  }
}

template <typename Real>
void Tableau<Real>::SetFloor(int64_t position) {
  floor_[Index(position)] = inside(position) ? std::numeric_limits<Real>::infinity()
                                             : kPivotFloor<Real> * Gram(position, position);
}

template <typename Real>
double Tableau<Real>::Change(int64_t position) const {
  const auto target = static_cast<double>(target_[Index(position)]);
  return target * target / std::fabs(static_cast<double>(diagonal_[Index(position)]));
}

template <typename Real>
void Tableau<Real>::Fetch(int64_t position, Real* out) const {
  std::copy_n(flushed_row(position), size_, out);
  Real factors[kPending];
  for (int64_t k = 0; k < pending_count_; ++k) {
    factors[k] = pending_factor_[Index(k)] * pending_.data()[k * stride_ + position];
  }
  serial::AddProduct<Real>(/*transpose=*/true, pending_count_, size_, 1, pending_.data(), stride_,
                           factors, out);
  out[position] = diagonal_[Index(position)];
}

// Row and column of the pivot are written as they are from now on, and taken out of the
// terms before: as one more rank-one term they would drown in rounding.
template <typename Real>
void Tableau<Real>::Sweep(int64_t position, const Real* column) {
  const bool leaves = inside(position);
  const Real pivot = diagonal_[Index(position)];
  const Real sign = leaves ? -1 : 1;
  const Real target = target_[Index(position)];
  const Real step = target / pivot;
  const Real inverse = 1 / pivot;
  Real* stored = pending_.data() + pending_count_ * stride_;
  for (int64_t i = 0; i < size_; ++i) {
    const Real entry = column[i];
    stored[i] = entry;
    target_[Index(i)] -= entry * step;
    diagonal_[Index(i)] -= entry * entry * inverse;
  }
  target_[Index(position)] = sign * step;
  diagonal_[Index(position)] = -inverse;
  if (marked_) {
    replaced_.emplace_back(position,
                           std::vector<Real>(flushed_row(position), flushed_row(position) + size_));
  }
  for (int64_t k = 0; k <= pending_count_; ++k) pending_.data()[k * stride_ + position] = 0;
  Real* row = matrix_.data() + position * stride_;
  const Real factor = sign * inverse;
  for (int64_t i = 0; i < size_; ++i) row[i] = factor * column[i];
  CopyToColumn(position);
  pending_factor_[Index(pending_count_)] = -inverse;
  ++pending_count_;
  inside_[Index(position)] = leaves ? 0 : 1;
  SetFloor(position);
  loss_ -= static_cast<double>(target) * static_cast<double>(step);
}

template <typename Real>
void Tableau<Real>::CopyToColumn(int64_t position) {
  const Real* row = flushed_row(position);
  Real* column = matrix_.data() + position;
  for (int64_t i = 0; i < size_; ++i) column[i * stride_] = row[i];
}

template <typename Real>
void Tableau<Real>::Flush() {
  if (pending_count_ == 0) return;
  for (int64_t k = 0; k < pending_count_; ++k) {
    const Real* from = pending_.data() + k * stride_;
    Real* to = scaled_.data() + k * stride_;
    const Real factor = pending_factor_[Index(k)];
    for (int64_t i = 0; i < size_; ++i) to[i] = factor * from[i];
  }
  AddOuterProducts(OuterProducts<Real>{.size = size_,
                                       .stride = stride_,
                                       .count = pending_count_,
                                       .left = scaled_.data(),
                                       .right = pending_.data(),
                                       .sum = matrix_.data()});
  pending_count_ = 0;
}

template <typename Real>
void Tableau<Real>::Mark() {
  saved_ = {loss_, target_, diagonal_, floor_, inside_};
  marked_ = true;
}

template <typename Real>
void Tableau<Real>::Keep() {
  replaced_.clear();
  marked_ = false;
}

template <typename Real>
void Tableau<Real>::Restore() {
  for (auto replaced = replaced_.rbegin(); replaced != replaced_.rend(); ++replaced) {
    const auto& [position, row] = *replaced;
    std::copy(row.begin(), row.end(), matrix_.data() + position * stride_);
    CopyToColumn(position);
  }
  replaced_.clear();
  marked_ = false;
  pending_count_ = 0;
  loss_ = saved_.loss;
  target_ = saved_.target;
  diagonal_ = saved_.diagonal;
  floor_ = saved_.floor;
  inside_ = saved_.inside;
}

// With s the entering columns of H_CC - Y^T Y and s_K their part inside:
//   A_CN = s_CN - A_CK' s_KN,  that is -A_KK s_K in the rows inside,
//   A_NN = s_NN + s_KN^T A_KK s_KN,   target_N = (b - Y^T y)_N - s_KN^T w'_K
template <typename Real>
int64_t Tableau<Real>::Border(const double* products, std::span<const int32_t> entering) {
  const auto room = static_cast<int64_t>(columns_.size()) - size_;
  const int64_t count = std::min<int64_t>(room, std::ssize(entering));
  const int64_t fixed = std::ssize(fixed_);
  const int64_t old = size_;
  for (int64_t n = 0; n < count; ++n) columns_[Index(old + n)] = entering[Index(n)];

  for (int64_t i = 0; i < fixed; ++i) {
    const Real* from = gram_.row(fixed_[Index(i)]);
    for (int64_t n = 0; n < count; ++n)
      panel_.data()[i * stride_ + old + n] = from[column(old + n)];
  }
  serial::SolveLeft<Real>({fixed, factor_.data(), StrideOf<Real>(fixed)}, count,
                          panel_.data() + old, stride_);
  // Row by row: the entering columns are few.
  std::vector<Real> schur(Index(old + count));
  std::vector<Real> inner(Index(old));
  std::vector<Real> left(fixed_.size());
  for (int64_t n = old; n < old + count; ++n) {
    for (int64_t j = 0; j <= n; ++j) schur[Index(j)] = Gram(n, j);
    for (int64_t i = 0; i < fixed; ++i) left[Index(i)] = panel_.data()[i * stride_ + n];
    serial::AddProduct<Real>(/*transpose=*/true, fixed, n + 1, -1, panel_.data(), stride_,
                             left.data(), schur.data());
    double target = products[column(n)];
    for (int64_t i = 0; i < fixed; ++i) {
      target -= static_cast<double>(left[Index(i)]) * static_cast<double>(fixed_target_[Index(i)]);
    }
    Real* row = matrix_.data() + n * stride_;
    std::copy_n(schur.begin(), n + 1, row);
    for (int64_t j = 0; j < old; ++j) {
      if (!inside(j)) continue;
      target -= static_cast<double>(schur[Index(j)]) * static_cast<double>(target_[Index(j)]);
      matrix_.data()[j * stride_ + j] = diagonal_[Index(j)];
    }
    // A_iN += -sum over j inside of A_ij s_jN, and s_iN itself only outside.
    for (int64_t i = 0; i < old; ++i) {
      inner[Index(i)] = inside(i) ? schur[Index(i)] : Real(0);
      if (inside(i)) row[i] = 0;
    }
    serial::AddProduct<Real>(/*transpose=*/false, old, old, -1, matrix_.data(), stride_,
                             inner.data(), row);
    // row[i], i inside, is -(A_KK s)_i = (H^-1 s)_i now.
    for (int64_t m = old; m <= n; ++m) {
      double entry = static_cast<double>(row[m]);
      const Real* other = matrix_.data() + m * stride_;
      for (int64_t j = 0; j < old; ++j) {
        if (inside(j)) {
          entry -= static_cast<double>(inner[Index(j)]) * static_cast<double>(other[j]);
        }
      }
      row[m] = static_cast<Real>(entry);
    }
    target_[Index(n)] = static_cast<Real>(target);
    diagonal_[Index(n)] = row[n];
    inside_[Index(n)] = 0;
    for (int64_t j = 0; j < n; ++j) matrix_.data()[j * stride_ + n] = row[j];
  }
  size_ = old + count;
  for (int64_t n = old; n < size_; ++n) SetFloor(n);
  return count;
}

template <typename Real>
void Tableau<Real>::Weights(Real* out) const {
  std::fill_n(out, cols_, Real(0));
  std::vector<Real> kept(Index(size_));
  for (int64_t i = 0; i < size_; ++i) {
    if (!inside(i)) continue;
    kept[Index(i)] = target_[Index(i)];
    out[column(i)] = target_[Index(i)];
  }
  const int64_t fixed = std::ssize(fixed_);
  std::vector<Real> solved = fixed_target_;
  serial::AddProduct<Real>(/*transpose=*/false, fixed, size_, -1, panel_.data(), stride_,
                           kept.data(), solved.data());
  serial::SolveVector<Real>({fixed, factor_.data(), StrideOf<Real>(fixed)}, /*transpose=*/true,
                            solved.data());
  for (int64_t i = 0; i < fixed; ++i) out[fixed_[Index(i)]] = solved[Index(i)];
}

template <typename Real>
int64_t TableauBytes(int64_t cols) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Real));
  const int64_t side = StrideOf<Real>(cols + Tableau<Real>::kRoom + kKernelSlack);
  return kSize * (4 * side * side + 3 * Tableau<Real>::kPending * side) + 64 * side;
}

template class Tableau<float>;
template class Tableau<double>;
template int64_t TableauBytes<float>(int64_t);
template int64_t TableauBytes<double>(int64_t);

}  // namespace sparsefw::cpu
