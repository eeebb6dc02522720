// An approximate inverse of G_SS for conjugate gradients on many rows, S each row's support.
//
//   N = s G s,  s_j = G_jj^-1/2, 0 where that is beyond range;     N ~ U U^T + mu I,  U [cols,
//   rank] z = s P_SS^-1 s r,     P_SS^-1 = (I - U_S (mu I + U_S^T U_S)^-1 U_S^T) / mu
//
// U: Nystrom approximation. Source: Frangella, Tropp, Udell 2021, "Randomized Nystrom
// Preconditioning". Deviations: the test matrix is brought nearer to the strongest directions
// by two products with N; mu is the mean of the diagonal of N - U U^T, not an eigenvalue. A few
// strong directions, which G of activations has, then cost no iterations.
#ifndef SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_NYSTROM_PRECONDITIONER_H_
#define SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_NYSTROM_PRECONDITIONER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Threads: the same bits for any number of them. Not thread-safe.
template <typename Real>
class NystromPreconditioner {
 public:
  // gram [cols, stride], symmetric, and mask outlive this object. Rows [first_row, first_row +
  // rows) of the mask.
  NystromPreconditioner(const Matrix<Real>& gram, const Mask& mask, int64_t first_row,
                        int64_t rows);

  // Before the first Apply.
  // Cost:   6 cols^2 rank flops, and kept rank^2 for every row
  // Errors: Cancelled
  absl::Status Prepare(const ParallelContext& context);

  // out [rows.size(), stride]: with out, z_j = diagonal()[j] r_j - out_j for j in S.
  //
  // residual: of the rows `rows`, numbered from first_row on, one after the other; 0 outside S
  // Cost:     4 cols rank flops a row
  // Errors:   Cancelled
  absl::Status Apply(const Matrix<Real>& residual, std::span<const int64_t> rows, Matrix<Real>& out,
                     const ParallelContext& context);
  const std::vector<Real>& diagonal() const { return diagonal_; }  // s^2 / mu

 private:
  absl::Status FindFactor(const ParallelContext& context);
  absl::Status MultiplyNormalised(const Matrix<Real>& q, Matrix<Real>& y,
                                  const ParallelContext& context);
  void TakeFactor(const Matrix<Real>& u);
  void FactorRow(int64_t row, std::vector<Real>& kept);
  Real* RowFactor(int64_t row) { return row_factors_.row(row); }

  const Matrix<Real>& gram_;  // [cols, stride]
  const int64_t cols_;
  const Mask& mask_;
  const int64_t first_row_;
  const int64_t rank_;
  std::vector<Real> scale_;     // s
  std::vector<Real> diagonal_;  // [stride]
  double mu_ = 1;
  Matrix<Real> right_;         // s U / sqrt(mu), [cols, rank]
  Matrix<Real> left_;          // its transpose / mu, [rank, stride]
  Matrix<Real> row_factors_;   // of each row: the lower factor of I + U_S^T U_S / mu, by rows
  Matrix<Real> coefficients_;  // [rows, rank]
};

int64_t NystromPreconditionerBytes(int64_t rows, int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_NYSTROM_PRECONDITIONER_H_
