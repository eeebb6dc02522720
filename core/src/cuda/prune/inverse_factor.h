// The inverse of the Cholesky factor of a positive definite matrix on the device.
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_INVERSE_FACTOR_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_INVERSE_FACTOR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cusolver_library.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/sparsegpt/inverse_factor.h"

namespace sparsefw::cuda {

// H of a symmetric matrix [size, StrideOf(size)] on the device.
struct ShiftedMatrix {
  const double* matrix = nullptr;
  double added = 0;       // to the diagonal
  bool reversed = false;  // rows and columns are taken from the last to the first
};

// The factor by cuSOLVER, its inverse by cuBLAS, in float64. The same bits at every run on the same
// device. Not thread-safe; the context must outlive it.
class InverseFactor {
 public:
  static absl::StatusOr<std::unique_ptr<InverseFactor>> Create(int64_t size,
                                                               const ExecutionContext& context);
  InverseFactor(const InverseFactor&) = delete;
  InverseFactor& operator=(const InverseFactor&) = delete;
  ~InverseFactor();

  // Device bytes held; cuSOLVER may want more beside a small matrix.
  static int64_t Bytes(int64_t size);

  // H = L L^T, and the inverse of L. Returns the pivot that was not positive, or nothing when all
  // were: a pivot is positive from size * 2^-52 of its diagonal on. Columns are those of the given
  // matrix. May be called again.
  //
  // Cost:   4/3 size^3 flops; waits for the stream
  // Errors: Cancelled, what went wrong on the device
  absl::StatusOr<std::optional<sparsegpt::FailedPivot>> Factorize(const ShiftedMatrix& h);
  // [size, stride]: L^-1, lower triangular.
  const double* inverse() const { return inverse_.data(); }

  // Replaces the factor by H^-1 = L^-T L^-1, [size, stride], its padding 0.
  // Cost:   2 size^3 flops
  absl::Status FormInverseOfMatrix();
  const double* inverse_of_matrix() const { return factor_.data(); }

 private:
  InverseFactor(int64_t size, const ExecutionContext& context);
  absl::Status Open();
  absl::StatusOr<std::optional<sparsegpt::FailedPivot>> FindFailedPivot(const ShiftedMatrix& h);

  const int64_t size_;
  const int64_t stride_;
  const ExecutionContext& context_;
  const CusolverLibrary* library_ = nullptr;
  CusolverHandle solver_ = nullptr;
  int device_ = 0;
  DeviceBuffer<double> factor_;
  DeviceBuffer<double> inverse_;  // cuSOLVER's workspace before
  int workspace_elements_ = 0;
  DeviceBuffer<int> info_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_INVERSE_FACTOR_H_
