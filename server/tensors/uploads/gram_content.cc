// A Gram matrix, summed over activation chunks as they come.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "server/tensors/spec.h"
#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Rows that are copied out of the sum, converted and written at once: the whole
// again, even for a moment, would be memory that nobody has reserved.
constexpr int64_t kBlockRows = 64;

absl::Status OutOfMemory(std::string_view what) {
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrFormat("%s must fit into host memory; it does not", what)),
                    "HOST_MEMORY", {{"retry_delay_ms", "1000"}});
}

// Writes rows of doubles as the dtype of the result and sums up their checksum.
class ResultWriter {
 public:
  ResultWriter(SpoolFile& file, TensorDType dtype) : file_(file), dtype_(dtype) {}

  absl::Status Write(GramAccumulator& sum) {
    const int64_t cols = sum.d_in();
    std::vector<double> doubles(static_cast<size_t>(std::min(kBlockRows, cols) * cols));
    for (int64_t row = 0; row < cols; row += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, cols - row);
      SPARSEFW_RETURN_IF_ERROR(sum.CopyRows(row, rows, doubles.data()));
      const std::span<const double> block(doubles.data(), static_cast<size_t>(rows * cols));
      SPARSEFW_RETURN_IF_ERROR(CheckRange(block, row, cols));
      if (dtype_ == TensorDType::kF64) {
        SPARSEFW_RETURN_IF_ERROR(Append(std::as_bytes(block)));
        continue;
      }
      floats_.resize(block.size());
      std::ranges::transform(block, floats_.begin(),
                             [](double value) { return static_cast<float>(value); });
      SPARSEFW_RETURN_IF_ERROR(Append(std::as_bytes(std::span(floats_))));
    }
    return absl::OkStatus();
  }

  uint32_t crc32c() const { return crc32c_; }

 private:
  // Finite activations can have a sum of squares that is beyond the dtype.
  absl::Status CheckRange(std::span<const double> block, int64_t first_row, int64_t cols) const {
    const double limit = dtype_ == TensorDType::kF64 ? std::numeric_limits<double>::max()
                                                     : std::numeric_limits<float>::max();
    const auto beyond =
        std::ranges::find_if_not(block, [limit](double value) { return std::abs(value) <= limit; });
    if (beyond == block.end()) return absl::OkStatus();
    const int64_t at = beyond - block.begin();
    return Invalid("NON_FINITE",
                   "a Gram matrix must be finite in its gram_dtype; got %g at [%d, %d], at "
                   "most %g fits",
                   *beyond, first_row + at / cols, at % cols, limit);
  }

  absl::Status Append(std::span<const std::byte> bytes) {
    SPARSEFW_RETURN_IF_ERROR(file_.Write(offset_, bytes));
    crc32c_ = ExtendCrc32c(crc32c_, bytes);
    offset_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }

  SpoolFile& file_;
  const TensorDType dtype_;
  std::vector<float> floats_;
  int64_t offset_ = 0;
  uint32_t crc32c_ = 0;
};

class GramContent final : public UploadContent {
 public:
  GramContent(const GramSpec& spec, std::string id, std::shared_ptr<Spool> spool,
              ByteBudget::Reservation reservation, const Backend* backend, int threads)
      : spec_(spec),
        token_bytes_(spec.d_in * ElementBytes(spec.activation_dtype)),
        id_(std::move(id)),
        spool_(std::move(spool)),
        reservation_(std::move(reservation)),
        backend_(backend),
        threads_(threads) {}

  UploadKind kind() const override { return UploadKind::kGram; }

  void Describe(UploadInfo& info) const override {
    info.spec = ResultSpec(spec_, committed_);
    info.gram = spec_;
    info.committed_tokens = committed_;
  }

  ReasonMetadata Progress() const override {
    return {{"committed_tokens", absl::StrFormat("%d", committed_)}};
  }

  absl::Status Prepare() override {
    SPARSEFW_ASSIGN_OR_RETURN(file_, spool_->Create(id_, ByteSize(ResultSpec(spec_, 0))));
    try {
      SPARSEFW_ASSIGN_OR_RETURN(sum_, backend_->CreateGramAccumulator(spec_.d_in, threads_));
    } catch (const std::bad_alloc&) {
      return OutOfMemory("the sum of a Gram accumulation");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) override {
    const auto size = static_cast<int64_t>(data.size());
    if (size % token_bytes_ != 0) {
      return Invalid("PARTIAL_TOKEN",
                     "a chunk must be whole tokens of %d bytes (d_in=%d); got %d bytes",
                     token_bytes_, spec_.d_in, size);
    }
    SPARSEFW_ASSIGN_OR_RETURN(const AppendRange range,
                              PlanAppend(offset, size / token_bytes_, committed_,
                                         std::numeric_limits<int64_t>::max(), "tokens"));
    if (range.count > 0) {
      const auto fresh = data.subspan(static_cast<size_t>(range.skip * token_bytes_));
      SPARSEFW_RETURN_IF_ERROR(Add(fresh, range.count));
      committed_ += range.count;
    }
    return committed_;
  }

  absl::StatusOr<CompleteTensor> Finish(std::optional<uint32_t> total_crc32c) override {
    if (committed_ == 0) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                    "at least one token must be summed before a Gram matrix is finished; "
                    "0 are");
    }
    ResultWriter writer(*file_, spec_.gram_dtype);
    try {
      SPARSEFW_RETURN_IF_ERROR(writer.Write(*sum_));
    } catch (const std::bad_alloc&) {
      return OutOfMemory("the result of a Gram accumulation");
    }
    if (total_crc32c && *total_crc32c != writer.crc32c()) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "total_crc32c must be the checksum of the Gram matrix, 0x%08x; got "
                    "0x%08x",
                    writer.crc32c(), *total_crc32c);
    }
    sum_.reset();
    const TensorSpec result = ResultSpec(spec_, committed_);
    reservation_.ShrinkTo(ByteSize(result));
    return CompleteTensor{result, writer.crc32c(), std::move(file_), std::move(reservation_)};
  }

 private:
  absl::Status Add(std::span<const std::byte> tokens, int64_t count) {
    const DType dtype = *MatrixDType(spec_.activation_dtype);  // by ValidateSpec
    try {
      std::vector<double> aligned;
      const std::byte* data = tokens.data();
      if (reinterpret_cast<uintptr_t>(data) % SizeOf(dtype) != 0) {
        aligned.resize((tokens.size() + sizeof(double) - 1) / sizeof(double));
        std::memcpy(aligned.data(), data, tokens.size());
        data = reinterpret_cast<const std::byte*>(aligned.data());
      }
      return sum_->Add(ConstMatrixView(data, dtype, count, spec_.d_in));
    } catch (const std::bad_alloc&) {
      return OutOfMemory("a chunk of activations");
    }
  }

  const GramSpec spec_;
  const int64_t token_bytes_;
  const std::string id_;
  const std::shared_ptr<Spool> spool_;
  ByteBudget::Reservation reservation_;
  const Backend* const backend_;
  const int threads_;
  std::unique_ptr<SpoolFile> file_;
  std::unique_ptr<GramAccumulator> sum_;
  int64_t committed_ = 0;  // tokens
};

}  // namespace

std::unique_ptr<UploadContent> MakeGramContent(const GramSpec& spec, std::string id,
                                               std::shared_ptr<Spool> spool,
                                               ByteBudget::Reservation reservation,
                                               const Backend* backend, int threads) {
  return std::make_unique<GramContent>(spec, std::move(id), std::move(spool),
                                       std::move(reservation), backend, threads);
}

}  // namespace sparsefw::server
