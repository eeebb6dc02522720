// Conjugate gradients on many rows at once; reconstruct.h says what for.
#ifndef SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
#define SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/cpu/reconstruct/nystrom_preconditioner.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Solves G_SS d = r_S for every row of a panel, S the row's kept columns, from d = 0 on.
//
// Rows that are done leave the product, so that the last slow ones cost little.
template <typename Real>
class RowConjugateGradients {
 public:
  struct Limits {
    int64_t iterations = kReconstructIterations;
    std::function<bool()> out_of_time = {};
    // The rows were solved before, except for rounding: rows whose r z is a tiny part of their loss
    // are left alone. For rows that were not solved, r z does not say what a step can gain.
    bool solved_before = false;
  };

  // gram [cols, stride], symmetric, and mask outlive this object. Rows [first_row, first_row +
  // rows) of the mask.
  RowConjugateGradients(const Matrix<Real>& gram, const Mask& mask, int64_t first_row,
                        int64_t rows);

  // residual [rows, stride]: r; columns outside the mask are ignored. losses: of the rows at
  // d = 0; empty: no row is done before the limits.
  // Errors: Cancelled
  template <typename From>
  absl::Status Solve(const Matrix<From>& residual, std::span<const double> losses,
                     const Limits& limits, const ParallelContext& context);

  // Whether d is 0 in all rows: they were solved already.
  bool nothing_to_do() const { return nothing_to_do_; }
  const Real* solution(int64_t row) const { return solution_.row(row); }

 private:
  struct Row {
    int64_t index = 0;                               // in the panel
    double rho = 0;                                  // <r, z>
    double loss = 0;                                 // above the floor
    std::array<double, kReconstructWindow> gains{};  // of the last steps
    bool done = false;
  };
  bool Kept(int64_t row, int64_t col) const { return mask_.Get(first_row_ + row, col); }
  template <typename From>
  absl::Status Begin(const Matrix<From>& residual, std::span<const double> losses,
                     bool solved_before, const ParallelContext& context);
  absl::Status EachActive(const ParallelContext& context, absl::FunctionRef<void(int64_t)> body);
  void Advance(int64_t position, int64_t iteration);
  absl::Status Turn(const ParallelContext& context);
  void TurnRow(int64_t position);
  void LeaveOutDone();

  const Matrix<Real>& gram_;  // [cols, stride]
  const int64_t cols_;
  const Mask& mask_;
  const int64_t first_row_;
  NystromPreconditioner<Real> preconditioner_;
  Matrix<Real> solution_;  // d
  // Values of the active rows, one after the other:
  Matrix<Real> residual_;   // r, 0 outside the mask
  Matrix<Real> direction_;  // p, likewise
  Matrix<Real> product_;    // p G; what the preconditioner takes from the residual
  std::vector<Row> active_;
  bool losses_known_ = false;
  bool nothing_to_do_ = false;
  std::vector<int64_t> rows_;  // scratch: their indices
};

int64_t RowConjugateGradientsBytes(int64_t rows, int64_t cols, int64_t size);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
