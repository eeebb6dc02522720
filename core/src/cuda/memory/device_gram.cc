#include "core/src/cuda/memory/device_gram.h"

#include "core/src/cuda/runtime/use_device.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {

absl::StatusOr<std::shared_ptr<CudaGram>> CudaGram::Create(int device) {
  SPARSEFW_RETURN_IF_ERROR(UseDevice(device));
  std::shared_ptr<CudaGram> result(new CudaGram(device));
  SPARSEFW_ASSIGN_OR_RETURN(result->stream_, CreateStream());
  return result;
}

absl::StatusOr<std::shared_ptr<const CudaGram>> CudaGram::Upload(int device, ConstMatrixView gram,
                                                                 const StopSignal* stop,
                                                                 double shrinkage) {
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<CudaGram> result, Create(device));
  SPARSEFW_ASSIGN_OR_RETURN(result->gram_,
                            GivenMatrix::Upload(gram, result->stream_.get(), stop, shrinkage));
  return result;
}

absl::StatusOr<std::shared_ptr<const CudaGram>> CudaGram::Shrunk(const CudaGram& given,
                                                                 double shrinkage) {
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<CudaGram> result, Create(given.device()));
  SPARSEFW_ASSIGN_OR_RETURN(result->gram_,
                            GivenMatrix::Shrunk(given.matrix(), shrinkage, result->stream_.get()));
  return result;
}

// Waits until the memory is free for others, whatever stream they take it on.
CudaGram::~CudaGram() {
  static_cast<void>(cudaSetDevice(device_));
  gram_ = {};
  if (stream_) static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

int64_t CudaGramBytes(int64_t cols, DType dtype) {
  return cols * cols * static_cast<int64_t>(SizeOf(dtype)) + kMaxAbsBytes;
}

}  // namespace sparsefw::cuda
