// A Gram matrix on a device as it was given, for any number of engines, or shrunk, for one.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_GRAM_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_GRAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// Immutable and complete once it exists, whatever the stream. Nothing on any
// stream may read it when it is destroyed; its memory is free afterwards.
class CudaGram final : public DeviceGram {
 public:
  // shrinkage: that of EngineProblem. Makes `device` the current one of the calling thread.
  // Errors: Cancelled, ResourceExhausted (OUT_OF_MEMORY), what went wrong there
  static absl::StatusOr<std::shared_ptr<const CudaGram>> Upload(int device, ConstMatrixView gram,
                                                                const StopSignal* stop,
                                                                double shrinkage = 0);
  // The same of a gram that is there, which may go afterwards.
  static absl::StatusOr<std::shared_ptr<const CudaGram>> Shrunk(const CudaGram& given,
                                                                double shrinkage);
  ~CudaGram() override;

  int device() const { return device_; }
  const RawMatrix& matrix() const { return gram_.view(); }
  double max_abs() const { return gram_.max_abs(); }

 private:
  explicit CudaGram(int device) : device_(device) {}
  static absl::StatusOr<std::shared_ptr<CudaGram>> Create(int device);

  const int device_;
  Stream stream_;
  GivenMatrix gram_;
};

// Bytes held, including the scratch that finds max_abs.
int64_t CudaGramBytes(int64_t cols, DType dtype);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_DEVICE_GRAM_H_
