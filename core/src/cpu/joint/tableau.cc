#include "core/src/cpu/joint/tableau.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsefw::cpu {

template <typename Real>
Tableau<Real>::Tableau(const Matrix<Real>& gram, int64_t cols)
    : gram_(gram),
      cols_(cols),
      panel_(cols, TableauStride(cols + kPanelUnit + kRoom + kKernelSlack, sizeof(Real))),
      matrix_(cols + kRoom, TableauStride(cols + kRoom + kKernelSlack, sizeof(Real))),
      pending_(kPending, TableauStride(cols + kRoom + kKernelSlack, sizeof(Real))),
      scaled_(kPending, TableauStride(cols + kRoom + kKernelSlack, sizeof(Real))),
      block_(Index(kPending * kPending)),
      pending_factor_(kPending) {}

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
  for (int64_t k = 0; k <= pending_count_; ++k) pending_.data()[k * stride_ + position] = 0;
  Real* row = matrix_.data() + position * stride_;
  const Real factor = sign * inverse;
  for (int64_t i = 0; i < size_; ++i) row[i] = factor * column[i];
  for (int64_t i = 0; i < size_; ++i) matrix_.data()[i * stride_ + position] = row[i];
  pending_factor_[Index(pending_count_)] = -inverse;
  ++pending_count_;
  inside_[Index(position)] = leaves ? 0 : 1;
  SetFloor(position);
  loss_ -= static_cast<double>(target) * static_cast<double>(step);
}

template <typename Real>
void Tableau<Real>::Flush() {
  if (pending_count_ == 0) return;
  for (int64_t k = 0; k < pending_count_; ++k) {
    const Real* from = pending_.data() + k * stride_;
    Real* to = scaled_.data() + k * stride_;
    const Real factor = -pending_factor_[Index(k)];  // which the kernel subtracts
    for (int64_t i = 0; i < size_; ++i) to[i] = factor * from[i];
  }
  KernelsOfJointSearch<Real>().subtract_outer_products({.begin = 0,
                                                        .end = size_,
                                                        .size = size_,
                                                        .count = pending_count_,
                                                        .stride = stride_,
                                                        .left = scaled_.data(),
                                                        .right = pending_.data(),
                                                        .sum = matrix_.data(),
                                                        .sum_stride = stride_});
  pending_count_ = 0;
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

  Real* panel = panel_.data() + panel_offset_;
  for (int64_t i = 0; i < fixed; ++i) {
    const Real* from = gram_.row(fixed_[Index(i)]);
    for (int64_t n = 0; n < count; ++n) panel[i * panel_stride_ + old + n] = from[column(old + n)];
  }
  serial::SolveTransposed<Real>(Factor(), count, panel + old, panel_stride_);
  // Row by row: the entering columns are few.
  std::vector<Real> schur(Index(old + count));
  std::vector<Real> inner(Index(old));
  std::vector<Real> left(fixed_.size());
  for (int64_t n = old; n < old + count; ++n) {
    for (int64_t j = 0; j <= n; ++j) schur[Index(j)] = Gram(n, j);
    for (int64_t i = 0; i < fixed; ++i) left[Index(i)] = panel[i * panel_stride_ + n];
    serial::AddProduct<Real>(/*transpose=*/true, fixed, n + 1, -1, panel, panel_stride_,
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
  serial::AddProduct<Real>(/*transpose=*/false, fixed, size_, -1, panel_.data() + panel_offset_,
                           panel_stride_, kept.data(), solved.data());
  serial::SolveVector<Real>(Factor(), solved.data());
  for (int64_t i = 0; i < fixed; ++i) out[fixed_[Index(i)]] = solved[Index(i)];
}

int64_t TableauBytes(int64_t cols, int64_t size) {
  using Any = Tableau<float>;  // the constants are the same in either precision
  const int64_t side = TableauStride(cols + Any::kPanelUnit + Any::kRoom + kKernelSlack, size);
  return size * (2 * side * side + 3 * Any::kPending * side) + 64 * side;
}

template class Tableau<float>;
template class Tableau<double>;

}  // namespace sparsefw::cpu
