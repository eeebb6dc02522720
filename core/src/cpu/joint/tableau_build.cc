// Swept in blocks of columns, on the upper triangle.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/src/cpu/joint/tableau.h"
#include "core/src/linalg/blas.h"

namespace sparsefw::cpu {
namespace {

template <typename Real>
double SquareSum(const Real* values, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

// U with U^T U = D, D the upper triangle of rows [count, stride] from column `first` on; its
// diagonal inverted, as solve_panel takes it.
//
// A pivot that is not above kPivotFloor times its `diagonal` is replaced by that diagonal (by
// 1 where it is 0), as if as much had been added there: the column depends on those
// before it, and a solution gives it next to nothing.
template <typename Real>
void FactorBlock(const Real* rows, int64_t stride, int64_t first, int64_t count,
                 const Real* diagonal, Real* u) {
  for (int64_t m = 0; m < count; ++m) {
    Real* row = u + m * count;
    for (int64_t j = m; j < count; ++j) row[j] = rows[m * stride + first + j];
    for (int64_t p = 0; p < m; ++p) {
      const Real* above = u + p * count;
      const Real factor = above[m];
      for (int64_t j = m; j < count; ++j) row[j] -= factor * above[j];
    }
    Real pivot = row[m];
    if (!(pivot > kPivotFloor<Real> * diagonal[m])) pivot = diagonal[m] > 0 ? diagonal[m] : 1;
    const Real inverse = 1 / std::sqrt(pivot);
    for (int64_t j = m + 1; j < count; ++j) row[j] *= inverse;
    row[m] = inverse;
  }
}

// x := U^-T x, and U^-1 x.
template <typename Real>
void SolveForward(const Real* u, int64_t count, Real* x) {
  for (int64_t m = 0; m < count; ++m) {
    x[m] *= u[m * count + m];
    for (int64_t j = m + 1; j < count; ++j) x[j] -= u[m * count + j] * x[m];
  }
}
template <typename Real>
void SolveBackward(const Real* u, int64_t count, Real* x) {
  for (int64_t m = count - 1; m >= 0; --m) {
    for (int64_t j = m + 1; j < count; ++j) x[m] -= u[m * count + j] * x[j];
    x[m] *= u[m * count + m];
  }
}

// Some columns of a row of H, in their order.
template <typename Real>
void CopyColumns(const Real* row, std::span<const int32_t> columns, Real* to) {
  for (const int32_t column : columns) *to++ = row[column];
}

}  // namespace

template <typename Real>
void Tableau<Real>::Layout(std::span<const int32_t> fixed, int64_t positions) {
  fixed_.assign(fixed.begin(), fixed.end());
  size_ = positions;
  stride_ = TableauStride(positions + kRoom + kKernelSlack, sizeof(Real));
  panel_offset_ = (std::ssize(fixed) + kPanelUnit - 1) / kPanelUnit * kPanelUnit;
  panel_stride_ = TableauStride(panel_offset_ + positions + kRoom + kKernelSlack, sizeof(Real));
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
    CopyColumns<Real>(gram_.row(column(i)), std::span(columns_).subspan(Index(i), Index(size_ - i)),
                      matrix_.data() + i * stride_ + i);
    target_[Index(i)] = static_cast<Real>(products[column(i)]);
  }
  loss_ = energy;
  EliminateFixed(products);
  for (int64_t first = 0; first < std::ssize(kept); first += kPending) {
    SweepBlock(first, std::min(kPending, std::ssize(kept) - first));
  }
  for (int64_t i = 0; i < size_; ++i) {
    inside_[Index(i)] = i < std::ssize(kept) ? 1 : 0;
    diagonal_[Index(i)] = matrix_.data()[i * stride_ + i];
    SetFloor(i);
  }
  Mirror();
}

// panel := R with R^T R = H_FF and Y = R^-T H_FC beside it;  A := H_CC - Y^T Y;
// target := b_C - Y^T y, y = R^-T b_F.
template <typename Real>
void Tableau<Real>::EliminateFixed(const double* products) {
  const int64_t count = std::ssize(fixed_);
  const int64_t width = panel_offset_ + size_;
  std::vector<Real> diagonal(fixed_.size());
  for (int64_t i = 0; i < count; ++i) {
    const Real* from = gram_.row(fixed_[Index(i)]);
    Real* to = panel_.data() + i * panel_stride_;
    const int64_t block = i / kPending * kPending;  // no more is read
    CopyColumns<Real>(from, std::span(fixed_).subspan(Index(block)), to + block);
    std::fill(to + count, to + panel_offset_, Real(0));
    CopyColumns<Real>(from, std::span(columns_).first(Index(size_)), to + panel_offset_);
    std::fill_n(to + width, kKernelSlack, Real(0));
    diagonal[Index(i)] = to[i];
    fixed_target_[Index(i)] = static_cast<Real>(products[fixed_[Index(i)]]);
  }
  for (int64_t first = 0; first < count; first += kPending) {
    const int64_t block = std::min(kPending, count - first);
    const int64_t next = first + block;
    Real* rows = panel_.data() + first * panel_stride_;
    Real* target = fixed_target_.data() + first;
    FactorBlock(rows, panel_stride_, first, block, diagonal.data() + first, block_.data());
    KernelsOfJointSearch<Real>().solve_panel({.count = block,
                                              .first = first,
                                              .size = width,
                                              .stride = panel_stride_,
                                              .factor = block_.data(),
                                              .rows = rows});
    for (int64_t m = 0; m < block; ++m) {
      rows[m * panel_stride_ + first + m] = 1 / block_[Index(m * block + m)];
    }
    SolveForward(block_.data(), block, target);
    serial::AddProduct<Real>(/*transpose=*/true, block, count - next, -1, rows + next,
                             panel_stride_, target, fixed_target_.data() + next);
    serial::AddProduct<Real>(/*transpose=*/true, block, size_, -1, rows + panel_offset_,
                             panel_stride_, target, target_.data());
    OuterProducts<Real> products_of = {.begin = next,
                                       .end = count,
                                       .size = width,
                                       .count = block,
                                       .stride = panel_stride_,
                                       .left = rows,
                                       .right = rows,
                                       .sum = panel_.data(),
                                       .sum_stride = panel_stride_,
                                       .upper = true};
    KernelsOfJointSearch<Real>().subtract_outer_products(products_of);
    products_of.begin = 0;
    products_of.end = products_of.size = size_;
    products_of.left = products_of.right = rows + panel_offset_;
    products_of.sum = matrix_.data();
    products_of.sum_stride = stride_;
    KernelsOfJointSearch<Real>().subtract_outer_products(products_of);
  }
  loss_ -= SquareSum(fixed_target_.data(), count);
}

// Columns B at once, P = A_BN, U^T U = A_BB, Y = U^-T P:
//   A_NN -= Y^T Y,  A_BN := U^-1 Y,  A_BB := -(U^T U)^-1,  t_N -= Y^T U^-T t_B,  t_B := A_BB^-1 t_B
template <typename Real>
void Tableau<Real>::SweepBlock(int64_t first, int64_t count) {
  const int64_t next = first + count;
  Real* a = matrix_.data();
  Real* rows = pending_.data();
  std::vector<Real> diagonal(Index(count));
  for (int64_t m = 0; m < count; ++m) {
    diagonal[Index(m)] = gram_(column(first + m), column(first + m));
    std::copy_n(a + (first + m) * stride_ + first, size_ - first, rows + m * stride_ + first);
  }
  for (int64_t j = 0; j < first; ++j) {
    for (int64_t m = 0; m < count; ++m) rows[m * stride_ + j] = a[j * stride_ + first + m];
  }
  FactorBlock(rows, stride_, first, count, diagonal.data(), block_.data());
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t p = 0; p < count; ++p) rows[m * stride_ + first + p] = p == m ? Real(1) : Real(0);
  }
  PanelSolve<Real> solve = {
      .count = count, .size = size_, .stride = stride_, .factor = block_.data(), .rows = rows};
  KernelsOfJointSearch<Real>().solve_panel(solve);
  std::vector<Real> target(target_.begin() + first, target_.begin() + next);
  SolveForward(block_.data(), count, target.data());
  serial::AddProduct<Real>(/*transpose=*/true, count, size_, -1, rows, stride_, target.data(),
                           target_.data());
  loss_ -= SquareSum(target.data(), count);
  SolveBackward(block_.data(), count, target.data());
  std::copy(target.begin(), target.end(), target_.begin() + first);
  KernelsOfJointSearch<Real>().subtract_outer_products({.begin = 0,
                                                        .end = size_,
                                                        .size = size_,
                                                        .count = count,
                                                        .stride = stride_,
                                                        .left = rows,
                                                        .right = rows,
                                                        .sum = a,
                                                        .sum_stride = stride_,
                                                        .upper = true});
  solve.backward = true;
  KernelsOfJointSearch<Real>().solve_panel(solve);
  for (int64_t j = 0; j < first; ++j) {
    for (int64_t m = 0; m < count; ++m) a[j * stride_ + first + m] = rows[m * stride_ + j];
  }
  for (int64_t m = 0; m < count; ++m) {
    Real* to = a + (first + m) * stride_;
    for (int64_t j = first; j < next; ++j) to[j] = -rows[m * stride_ + j];
    std::copy_n(rows + m * stride_ + next, size_ - next, to + next);
  }
}

// The upper triangle onto the lower, in tiles that fit the cache both ways.
template <typename Real>
void Tableau<Real>::Mirror() {
  constexpr int64_t kTile = 32;
  Real* a = matrix_.data();
  for (int64_t first = 0; first < size_; first += kTile) {
    const int64_t end = std::min(first + kTile, size_);
    for (int64_t left = 0; left <= first; left += kTile) {
      for (int64_t i = first; i < end; ++i) {
        const int64_t stop = std::min(left + kTile, i);
        for (int64_t j = left; j < stop; ++j) a[i * stride_ + j] = a[j * stride_ + i];
      }
    }
  }
}

template class Tableau<float>;
template class Tableau<double>;

}  // namespace sparsefw::cpu
