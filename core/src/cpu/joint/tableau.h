// The sweep tableau of one row, for exchanges with all kept weights solved anew.
//
//   A = sweep of [H b; b^T c] on the kept columns S,   b = wH,  c = w H w^T
//
//   A_ij, i in S, j in S:        -(H_SS^-1)_ij
//   A_ij, i in S, j outside:     (H_SS^-1 H_Sj)_i
//   A_ij, i and j outside:       H_ij - H_iS H_SS^-1 H_Sj        (Schur complement)
//   target_i, i in S:            the weight;  i outside: the residual b_i - w'H_i
//   loss                         L*(S)
//
// Sweeping column k in (out), d = A_kk > 0 (< 0), s = 1 (-1):
//
//   A_ij -= A_ik A_jk / d,   A_kj := s A_kj / d,   A_kk := -1 / d,   loss -= target_k^2 / d
//
// Goodnight 1979, "A tutorial on the SWEEP operator". Columns that stay for certain, F,
// are eliminated by a Cholesky factor and are not part of A: only columns in doubt are.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_TABLEAU_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_TABLEAU_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/src/cpu/joint/joint_kernels.h"
#include "core/src/joint/joint_rules.h"
#include "core/src/linalg/blas.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// In values of so many bytes. Rows a multiple of 4 KiB apart would share a few sets of the cache.
inline int64_t TableauStride(int64_t values, int64_t size) {
  const int64_t line = 64 / size;
  const int64_t stride = (values + line - 1) / line * line;
  return stride % (1024 / size) == 0 ? stride + line : stride;
}

// A column's position in the tableau is fixed while it is in it. The rank-one terms of
// sweeps are kept apart until Flush, which adds them in one product: a sweep costs O(n *
// pending) rather than n^2. Used again for row after row: the memory is that of the
// largest.
//
// Numeric: Real throughout but for sums of the loss. Not thread-safe.
template <typename Real>
class Tableau {
 public:
  static constexpr int64_t kPending = 32;  // sweeps between two products
  static constexpr int64_t kRoom = 64;     // columns that Border may add
  static constexpr int64_t kPanelUnit = 16;

  // gram [cols, stride], symmetric, stride whole words of 64: H. Outlives this object. Memory:
  // TableauBytes.
  explicit Tableau(const Matrix<Real>& gram, int64_t cols);

  // Sweeps `fixed` and `kept` in. products: b of the row; energy: c.
  // Cost: about (|S|^3 + n |S|^2 + n^2 |S|) / 3 .. 1 flops, n the columns in doubt
  void Build(const double* products, double energy, std::span<const int32_t> fixed,
             std::span<const int32_t> kept, std::span<const int32_t> outside);

  int64_t size() const { return size_; }
  // Elements that Fetch's output must have room for, now and after Border.
  int64_t stride() const { return stride_; }
  int32_t column(int64_t position) const { return columns_[Index(position)]; }
  bool inside(int64_t position) const { return inside_[Index(position)] != 0; }
  double loss() const { return loss_; }
  const Real* targets() const { return target_.data(); }
  const Real* diagonals() const { return diagonal_.data(); }
  // What A_pp must be above for p to enter; infinite for columns that are inside.
  const Real* floors() const { return floor_.data(); }
  // Row of A at the last Flush; its diagonal entry means nothing.
  const Real* flushed_row(int64_t position) const { return matrix_.data() + position * stride_; }

  // What sweeping it out costs, or in gains: target^2 / |d|.
  double Change(int64_t position) const;

  // Room for `sweeps` more before a Flush.
  bool HasRoom(int64_t sweeps) const { return pending_count_ + sweeps <= kPending; }
  // Column `position` of A as it is now, [size].
  void Fetch(int64_t position, Real* out) const;
  // Sweeps it in, or out where it is inside. column: what Fetch says of it.
  void Sweep(int64_t position, const Real* column);
  void Flush();

  // Takes up to kRoom more columns, that are outside; nothing is pending.
  // Returns how many fitted.
  int64_t Border(const double* products, std::span<const int32_t> entering);

  // The kept weights of the row, in the order of their columns 0 .. cols - 1; others 0.
  void Weights(Real* out) const;

 private:
  static size_t Index(int64_t position) { return static_cast<size_t>(position); }
  Real Gram(int64_t i, int64_t j) const { return gram_(columns_[Index(i)], columns_[Index(j)]); }
  void Layout(std::span<const int32_t> fixed, int64_t positions);
  void EliminateFixed(const double* products);
  void SweepBlock(int64_t first, int64_t count);
  void Mirror();
  void SetFloor(int64_t position);
  serial::Upper<Real> Factor() const { return {std::ssize(fixed_), panel_.data(), panel_stride_}; }

  const Matrix<Real>& gram_;
  const int64_t cols_;
  int64_t size_ = 0;    // columns in doubt
  int64_t stride_ = 0;  // of matrix_ and pending_
  int64_t panel_stride_ = 0;
  int64_t panel_offset_ = 0;  // of its part beside the factor
  std::vector<int32_t> fixed_;
  std::vector<int32_t> columns_;
  std::vector<uint8_t> inside_;
  Matrix<Real> panel_;                // R, R^T R = H_FF, [F, F]; beside it R^-T H_FC, [F, n]
  Matrix<Real> matrix_;               // A, [n, n]
  Matrix<Real> pending_;              // [kPending, n]: columns of sweeps
  Matrix<Real> scaled_;               // [kPending, n]: scratch of Flush
  std::vector<Real> block_;           // [kPending, kPending]: scratch of Build
  std::vector<Real> pending_factor_;  // -1 / d of each
  int64_t pending_count_ = 0;
  std::vector<Real> fixed_target_;  // the factor's inverse times b_F
  std::vector<Real> target_;
  std::vector<Real> diagonal_;
  std::vector<Real> floor_;
  double loss_ = 0;
};

// Bytes of one of them, at most.
int64_t TableauBytes(int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_TABLEAU_H_
