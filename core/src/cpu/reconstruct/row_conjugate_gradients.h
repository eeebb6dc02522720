// Conjugate gradients on many rows at once; reconstruct.h says what for.
#ifndef SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
#define SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/reconstruct/reconstruction_rules.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Solves G_SS d = r_S for every row of a panel, S the row's kept columns.
//
// Rows that are done leave the product, so that the last slow ones cost little.
template <typename Real>
class RowConjugateGradients {
 public:
  // Rows [first_row, first_row + rows) of the layer and the mask. `residual`
  // [rows, stride], columns outside the mask are ignored; `losses`: of the
  // rows at d = 0.
  RowConjugateGradients(const ScaledLayer<Real>& layer, const Mask& mask, int64_t first_row,
                        const Matrix<double>& residual, const std::vector<double>& losses);

  // Errors: Cancelled
  absl::Status Solve(const std::function<bool()>& out_of_time, const ParallelContext& context);

  const Real* solution(int64_t row) const { return solution_.row(row); }

 private:
  struct Row {
    int64_t index = 0;  // in the panel
    double rho = 0;     // <r, z>
    double loss = 0;
    std::array<double, kReconstructWindow> gains{};  // of the last steps
    bool done = false;
  };
  bool Kept(int64_t row, int64_t col) const { return mask_.Get(first_row_ + row, col); }
  void Step(int64_t position, int64_t iteration);
  void LeaveOutDone();

  const ScaledLayer<Real>& layer_;
  const Mask& mask_;
  const int64_t first_row_;
  std::vector<Real> preconditioner_;  // 1 / G_jj, 0 where G_jj is 0
  Matrix<Real> solution_;             // d
  Matrix<Real> residual_;             // r, 0 outside the mask
  Matrix<Real> direction_;            // p of the active rows, one after the other
  Matrix<Real> product_;              // p G of them
  std::vector<Row> active_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
