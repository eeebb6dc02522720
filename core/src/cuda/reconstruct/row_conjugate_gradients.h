// Conjugate gradients on many rows at once; reconstruct.h says what for.
#ifndef SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
#define SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/symmetric_product.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/reconstruct/row_gradients.h"
#include "core/src/cuda/runtime/execution_context.h"

namespace sparsefw::cuda {

// Solves G_SS d = r_S for every row of a panel, S the row's kept columns.
//
// Rows that are done are left alone, and leave the product once they are half
// of it, so that the last slow ones cost little. Which rows take part in a
// product does not touch the others.
//
// Not thread-safe. The layer and the context must outlive it.
template <typename Real>
class RowConjugateGradients {
 public:
  // For panels of at most `rows` rows.
  // Memory: 4 * sizeof(Real) * rows * stride bytes on the device, and symmetric_product.h
  static absl::StatusOr<RowConjugateGradients> Create(const DeviceLayer<Real>& layer, int64_t rows,
                                                      const ExecutionContext& context);

  static int64_t Bytes(int64_t rows, int64_t cols) {
    const int64_t of_rows = rows * int64_t{sizeof(GradientRow) + 2 * sizeof(int)};
    return int64_t{sizeof(Real)} * (4 * rows + 1) * StrideOf(cols) + of_rows +
           int64_t{sizeof(int)} +
           SymmetricProduct<Real>::Bytes(rows, cols, SymmetricProduct<Real>::Use::kRows);
  }

  // Rows begin at weights that were solved on the mask before: the least that is left is rounding.
  void BeginSolved() { solved_before_ = true; }

  // kept: words of the panel's mask; residual [rows, stride], columns outside
  // the mask are ignored; losses [rows]: at d = 0. All on the device.
  // Errors: Cancelled
  absl::Status Solve(const BitWord* kept, int64_t rows, const double* residual,
                     const double* losses, const std::function<bool()>& out_of_time);

  const Real* solution() const { return solution_.data(); }  // [rows, stride]

 private:
  RowConjugateGradients(const DeviceLayer<Real>& layer, const ExecutionContext& context)
      : layer_(layer), context_(context) {}
  GradientPanel<Real> Panel(const BitWord* kept);
  absl::StatusOr<int64_t> CountUnfinished();
  absl::Status LeaveOutDone(int64_t rows);

  const DeviceLayer<Real>& layer_;
  const ExecutionContext& context_;
  DeviceBuffer<Real> preconditioner_;
  DeviceBuffer<Real> solution_;
  DeviceBuffer<Real> residual_;
  DeviceBuffer<Real> direction_;
  DeviceBuffer<Real> product_;
  std::optional<SymmetricProduct<Real>> symmetric_;
  DeviceBuffer<GradientRow> rows_;
  DeviceBuffer<int> active_;
  DeviceBuffer<int> from_;        // positions that stay
  DeviceBuffer<int> unfinished_;  // rows, counted by the kernels
  std::vector<int> positions_;    // row of every position, as active_
  bool solved_before_ = false;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RECONSTRUCT_ROW_CONJUGATE_GRADIENTS_H_
