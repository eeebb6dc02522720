#include "core/src/cuda/linalg/gram_accumulator.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/src/cuda/linalg/gram_sum.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/runtime/use_device.h"
#include "core/src/linalg/gram_accumulator.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kStripeRows = 2048;              // rows of a block's product at a time
constexpr int64_t kMeanRows = 256;                 // rows of a partial Gram matrix at a time
constexpr int64_t kMostInputs = int64_t{1} << 20;  // 8 TiB of sum: no device has that

absl::Status OutOfMemory(int64_t d_in) {
  return Refuse(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                "no memory on the device for a Gram accumulation of d_in=%d", d_in);
}

cudaDataType_t CudaType(DType dtype) {
  if (dtype == DType::kF16) return CUDA_R_16F;
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Columns [first_col, first_col + cols) of a view's rows, without gaps, into `to`.
absl::StatusOr<RawMatrix> UploadColumns(ConstMatrixView matrix, int64_t first_col, int64_t cols,
                                        double* to, cudaStream_t stream) {
  const size_t before = static_cast<size_t>(first_col) * SizeOf(matrix.dtype());
  const ConstMatrixView columns(matrix.row_bytes(0) + before, matrix.dtype(), matrix.rows(), cols,
                                matrix.stride());
  SPARSEFW_RETURN_IF_ERROR(StagedUpload(columns, to, stream));
  return RawMatrix{to, matrix.dtype(), matrix.rows(), cols};
}

class CudaGramAccumulator final : public GramAccumulator {
 public:
  CudaGramAccumulator(int device, int64_t d_in, std::unique_ptr<ExecutionContext> context)
      : device_(device), d_in_(d_in), context_(std::move(context)) {}
  // Members free their memory on the device that is current in this thread.
  ~CudaGramAccumulator() override { static_cast<void>(cudaSetDevice(device_)); }
  absl::Status Allocate();

  // Returns when the chunk may go, not when its product is done.
  absl::Status Add(ConstMatrixView chunk) override;
  absl::Status AddGram(ConstMatrixView gram, int64_t token_count) override;
  int64_t d_in() const override { return d_in_; }
  int64_t token_count() const override { return token_count_; }
  absl::Status CopyRows(int64_t first, int64_t count, double* rows) override;
  absl::Status SaveState(GramStateSink sink) override;
  absl::Status RestoreState(GramStateSource source) override;

 private:
  absl::Status Enter() const;
  absl::Status AddTokens(ConstMatrixView chunk);
  absl::Status AddBlock();
  absl::Status AddSymmetrised(ConstMatrixView gram, double* upper_data, double* lower_data);
  absl::Status Download(int64_t first, int64_t count, double* rows);
  absl::StatusOr<std::vector<std::byte>> DownloadTokens();
  absl::Status UploadTokens(const GramStateHeader& header, GramStateSource source);
  absl::Status Remember(const absl::Status& status);

  const int device_;
  const int64_t d_in_;
  const std::unique_ptr<ExecutionContext> context_;
  DeviceBuffer<double> sum_;           // [d_in, d_in]; the lower triangle if mirrored_
  DeviceBuffer<float> block_product_;  // [stripe, d_in]
  DeviceBuffer<uint32_t> block_;       // tokens not yet summed, StrideOf(d_in) apart
  DType block_dtype_ = DType::kF32;
  int64_t waiting_ = 0;  // how many those are, below kGramBlockTokens
  int64_t token_count_ = 0;
  bool mirrored_ = false;
  absl::Status failed_;  // what went wrong on the device, if anything has
};

absl::Status CudaGramAccumulator::Allocate() {
  SPARSEFW_ASSIGN_OR_RETURN(sum_, DeviceBuffer<double>::Zeroed(d_in_ * d_in_, context_->stream()));
  SPARSEFW_ASSIGN_OR_RETURN(
      block_product_,
      DeviceBuffer<float>::Create(std::min(kStripeRows, d_in_) * d_in_, context_->stream()));
  SPARSEFW_ASSIGN_OR_RETURN(block_, DeviceBuffer<uint32_t>::Create(
                                        kGramBlockTokens * StrideOf(d_in_), context_->stream()));
  return context_->Await();
}

absl::Status CudaGramAccumulator::Enter() const {
  if (!failed_.ok()) return failed_;
  return UseDevice(device_);
}

absl::Status CudaGramAccumulator::Remember(const absl::Status& status) {
  if (failed_.ok()) failed_ = status;
  return status;
}

absl::Status CudaGramAccumulator::Add(ConstMatrixView chunk) {
  SPARSEFW_RETURN_IF_ERROR(ValidateChunk(chunk, d_in_, token_count_));
  SPARSEFW_RETURN_IF_ERROR(Enter());
  if (chunk.rows() == 0) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(Remember(AddTokens(chunk)));
  token_count_ += chunk.rows();
  return absl::OkStatus();
}

absl::Status CudaGramAccumulator::AddTokens(ConstMatrixView chunk) {
  if (waiting_ > 0 && chunk.dtype() != block_dtype_) SPARSEFW_RETURN_IF_ERROR(AddBlock());
  block_dtype_ = chunk.dtype();
  const size_t pitch = static_cast<size_t>(StrideOf(d_in_)) * SizeOf(chunk.dtype());
  for (int64_t first = 0; first < chunk.rows();) {
    const int64_t count = std::min(kGramBlockTokens - waiting_, chunk.rows() - first);
    auto* to =
        reinterpret_cast<unsigned char*>(block_.data()) + static_cast<size_t>(waiting_) * pitch;
    SPARSEFW_RETURN_IF_ERROR(StagedUpload(chunk.Rows(first, count), to, pitch, context_->stream()));
    waiting_ += count;
    first += count;
    if (waiting_ == kGramBlockTokens) SPARSEFW_RETURN_IF_ERROR(AddBlock());
  }
  return absl::OkStatus();
}

// Stripe by stripe of the product, from the diagonal on.
absl::Status CudaGramAccumulator::AddBlock() {
  const auto* tokens = reinterpret_cast<const unsigned char*>(block_.data());
  for (int64_t first = 0; first < d_in_; first += kStripeRows) {
    const int64_t rows = std::min(kStripeRows, d_in_ - first);
    const void* columns = tokens + static_cast<size_t>(first) * SizeOf(block_dtype_);
    SPARSEFW_RETURN_IF_ERROR(
        context_->Multiply({.rows = rows,
                            .cols = d_in_ - first,
                            .depth = waiting_,
                            .a = {columns, StrideOf(d_in_), /*transposed=*/true},
                            .b = {columns, StrideOf(d_in_)},
                            .c = block_product_.data(),
                            .c_stride = d_in_ - first,
                            .input = CudaType(block_dtype_)}));
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchAddProduct(block_product_.data(), first, rows, d_in_,
                                                   sum_.data(), context_->stream()));
  }
  waiting_ = 0;
  mirrored_ = false;
  return absl::OkStatus();
}

absl::Status CudaGramAccumulator::AddGram(ConstMatrixView gram, int64_t token_count) {
  SPARSEFW_RETURN_IF_ERROR(ValidatePartialGram(gram, d_in_, token_count));
  SPARSEFW_RETURN_IF_ERROR(Enter());
  // In doubles, whatever the dtype, and before the first change of the sum.
  const int64_t size = std::min(kMeanRows, d_in_) * d_in_;
  SPARSEFW_ASSIGN_OR_RETURN(auto upper, DeviceBuffer<double>::Create(size, context_->stream()));
  SPARSEFW_ASSIGN_OR_RETURN(auto lower, DeviceBuffer<double>::Create(size, context_->stream()));
  SPARSEFW_RETURN_IF_ERROR(Remember(AddSymmetrised(gram, upper.data(), lower.data())));
  token_count_ += token_count;
  return absl::OkStatus();
}

absl::Status CudaGramAccumulator::AddSymmetrised(ConstMatrixView gram, double* upper_data,
                                                 double* lower_data) {
  for (int64_t first = 0; first < d_in_; first += kMeanRows) {
    const int64_t rows = std::min(kMeanRows, d_in_ - first);
    const int64_t rest = d_in_ - first;
    SPARSEFW_ASSIGN_OR_RETURN(
        const RawMatrix upper,
        UploadColumns(gram.Rows(first, rows), first, rest, upper_data, context_->stream()));
    SPARSEFW_ASSIGN_OR_RETURN(
        const RawMatrix lower,
        UploadColumns(gram.Rows(first, rest), first, rows, lower_data, context_->stream()));
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchAddMean(upper, lower, first, d_in_, sum_.data(), context_->stream()));
  }
  mirrored_ = false;
  return context_->Await();
}

absl::Status CudaGramAccumulator::CopyRows(int64_t first, int64_t count, double* rows) {
  SPARSEFW_RETURN_IF_ERROR(Enter());
  return Remember(Download(first, count, rows));
}

absl::Status CudaGramAccumulator::Download(int64_t first, int64_t count, double* rows) {
  if (waiting_ > 0) SPARSEFW_RETURN_IF_ERROR(AddBlock());
  if (!mirrored_) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchMirror(d_in_, sum_.data(), context_->stream()));
  }
  mirrored_ = true;
  return CopyAndWait(rows, sum_.data() + first * d_in_, count * d_in_, cudaMemcpyDeviceToHost,
                     context_->stream());
}

// The tokens of the block that is not full, without gaps.
absl::StatusOr<std::vector<std::byte>> CudaGramAccumulator::DownloadTokens() {
  const size_t row_bytes = static_cast<size_t>(d_in_) * SizeOf(block_dtype_);
  const size_t pitch = static_cast<size_t>(StrideOf(d_in_)) * SizeOf(block_dtype_);
  std::vector<std::byte> tokens(static_cast<size_t>(waiting_) * row_bytes);
  if (tokens.empty()) return tokens;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(tokens.data(), row_bytes, block_.data(), pitch,
                                                  row_bytes, static_cast<size_t>(waiting_),
                                                  cudaMemcpyDeviceToHost, context_->stream()));
  SPARSEFW_RETURN_IF_ERROR(context_->Await());
  return tokens;
}

absl::Status CudaGramAccumulator::SaveState(GramStateSink sink) {
  SPARSEFW_RETURN_IF_ERROR(Enter());
  SPARSEFW_RETURN_IF_ERROR(WriteGramStateHeader(d_in_, token_count_, waiting_, block_dtype_, sink));
  std::vector<double> rows(static_cast<size_t>(std::min(kMeanRows, d_in_) * d_in_));
  for (int64_t first = 0; first < d_in_; first += kMeanRows) {
    const int64_t count = std::min(kMeanRows, d_in_ - first);
    SPARSEFW_RETURN_IF_ERROR(
        Remember(CopyAndWait(rows.data(), sum_.data() + first * d_in_, count * d_in_,
                             cudaMemcpyDeviceToHost, context_->stream())));
    SPARSEFW_RETURN_IF_ERROR(WriteUpperRows(rows.data(), first, count, d_in_, sink));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<std::byte> tokens, DownloadTokens());
  return tokens.empty() ? absl::OkStatus() : sink(tokens);
}

absl::Status CudaGramAccumulator::RestoreState(GramStateSource source) {
  SPARSEFW_RETURN_IF_ERROR(Enter());
  SPARSEFW_ASSIGN_OR_RETURN(const GramStateHeader header, ReadGramStateHeader(d_in_, source));
  std::vector<double> rows(static_cast<size_t>(std::min(kMeanRows, d_in_) * d_in_));
  for (int64_t first = 0; first < d_in_; first += kMeanRows) {
    const int64_t count = std::min(kMeanRows, d_in_ - first);
    SPARSEFW_RETURN_IF_ERROR(ReadUpperRows(rows.data(), first, count, d_in_, source));
    const ConstMatrixView view(rows.data(), DType::kF64, count, d_in_);
    SPARSEFW_RETURN_IF_ERROR(
        Remember(StagedUpload(view, sum_.data() + first * d_in_, context_->stream())));
  }
  mirrored_ = false;
  token_count_ = header.token_count;
  SPARSEFW_RETURN_IF_ERROR(UploadTokens(header, source));
  return Remember(context_->Await());
}

absl::Status CudaGramAccumulator::UploadTokens(const GramStateHeader& header,
                                               GramStateSource source) {
  block_dtype_ = static_cast<DType>(header.dtype);
  const size_t row_bytes = static_cast<size_t>(d_in_) * SizeOf(block_dtype_);
  std::vector<std::byte> tokens(static_cast<size_t>(header.waiting) * row_bytes);
  if (tokens.empty()) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(source(tokens));
  const ConstMatrixView view(tokens.data(), block_dtype_, header.waiting, d_in_);
  const size_t pitch = static_cast<size_t>(StrideOf(d_in_)) * SizeOf(block_dtype_);
  SPARSEFW_RETURN_IF_ERROR(StagedUpload(view, block_.data(), pitch, context_->stream()));
  waiting_ = header.waiting;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateCudaGramAccumulator(int device,
                                                                           int64_t d_in) {
  if (d_in < 1) return Invalid("SHAPE_MISMATCH", "d_in must be at least 1; got %d", d_in);
  if (d_in > kMostInputs) return OutOfMemory(d_in);
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionContext> context,
                            ExecutionContext::Open(device, kWorkspaceBytes, nullptr));
  auto result = std::make_unique<CudaGramAccumulator>(device, d_in, std::move(context));
  const absl::Status allocated = result->Allocate();
  if (absl::IsResourceExhausted(allocated)) return OutOfMemory(d_in);
  SPARSEFW_RETURN_IF_ERROR(allocated);
  return result;
}

int64_t GramAccumulatorBytes(int64_t d_in) {
  const int64_t product = 4 * std::min(kStripeRows, d_in) * d_in;
  const int64_t means = 2 * 8 * std::min(kMeanRows, d_in) * d_in;
  return kWorkspaceBytes + 8 * d_in * d_in + product + means +
         4 * kGramBlockTokens * StrideOf(d_in);
}

}  // namespace sparsefw::cuda
