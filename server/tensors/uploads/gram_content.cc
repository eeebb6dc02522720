// A Gram matrix, summed over activation chunks as they come.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "server/failpoint/failpoint.h"
#include "server/identity/random_hex.h"
#include "server/tensors/tensor_spec.h"
#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Rows that are copied out of the sum, converted and written at once: the whole
// again, even for a moment, would be memory that nobody has reserved.
constexpr int64_t kBlockRows = 64;

absl::Status OutOfMemory(std::string_view what) {
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "HOST_MEMORY",
                      "%s must fit into host memory; it does not", what);
}

// Writes a file from its beginning, and sums up the checksum.
class FileWriter {
 public:
  explicit FileWriter(SpoolFile& file) : file_(file) {}

  absl::Status Write(std::span<const std::byte> bytes) {
    SPARSEFW_RETURN_IF_ERROR(file_.Write(offset_, bytes));
    crc32c_ = ExtendCrc32c(crc32c_, bytes);
    offset_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }
  // Rows of a state are short: they are written together.
  absl::Status Append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    SPARSEFW_RETURN_IF_ERROR(Write(buffer_));
    buffer_.clear();
    return absl::OkStatus();
  }
  uint32_t crc32c() const { return crc32c_; }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  SpoolFile& file_;
  std::vector<std::byte> buffer_;
  int64_t offset_ = 0;
  uint32_t crc32c_ = 0;
};

class GramContent final : public UploadContent {
 public:
  GramContent(const GramSpec& spec, ContentRoom room, std::shared_ptr<Accumulators> accumulators)
      : UploadContent(std::move(room)),
        spec_(spec),
        token_bytes_(spec.d_in * static_cast<int64_t>(SizeOf(spec.activation_dtype))),
        accumulators_(std::move(accumulators)) {}

  UploadKind kind() const override { return UploadKind::kGram; }

  void Describe(UploadInfo& info) const override {
    info.spec = ResultSpec(spec_, saved_.committed);
    info.gram = spec_;
    info.committed_tokens = saved_.committed;
  }

  absl::Status Prepare() override {
    SPARSEFW_ASSIGN_OR_RETURN(file_, room_.spool->Create(room_.id, ByteSize(ResultSpec(spec_, 0))));
    return MakeSum();
  }

  // The sum is made when it is needed: the device may lack the memory now.
  absl::Status Recover(const UploadProgress& progress) override {
    if (!progress.sums.empty()) {
      SPARSEFW_ASSIGN_OR_RETURN(sums_,
                                room_.spool->Adopt(progress.sums, GramStateBytes(spec_.d_in)));
    }
    // Nothing of the result's file is needed but its room.
    const int64_t size = ByteSize(ResultSpec(spec_, 0));
    if (auto file = room_.spool->Adopt(room_.id, size); file.ok()) {
      file_ = *std::move(file);
    } else {
      SPARSEFW_RETURN_IF_ERROR(room_.spool->Remove(room_.id));
      SPARSEFW_ASSIGN_OR_RETURN(file_, room_.spool->Create(room_.id, size));
    }
    saved_ = progress;
    appended_ = progress.committed;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) override {
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t count, TokensIn(spec_, data.size()));
    SPARSEFW_ASSIGN_OR_RETURN(
        const AppendRange range,
        PlanAppend(offset, count, appended_, std::numeric_limits<int64_t>::max(), "tokens"));
    if (range.count > 0) {
      const auto fresh = data.subspan(static_cast<size_t>(range.skip * token_bytes_));
      SPARSEFW_RETURN_IF_ERROR(MakeSum());
      SPARSEFW_RETURN_IF_ERROR(Add(fresh, range.count));
      appended_ += range.count;
    }
    return appended_;
  }

  UploadProgress appended() const override { return {appended_, 0, ""}; }
  int64_t unsaved_bytes() const override { return (appended_ - saved_.committed) * token_bytes_; }
  // Saving writes the whole sum.
  int64_t save_interval() const override {
    return std::max(room_.save_interval, 4 * GramStateBytes(spec_.d_in));
  }
  absl::StatusOr<UploadProgress> Save() override;
  void Saved(const UploadProgress& progress) override {
    if (new_sums_ != nullptr) {
      if (sums_ != nullptr) sums_->Remove();
      sums_ = std::move(new_sums_);
    }
    UploadContent::Saved(progress);
  }
  void NotSaved(const UploadProgress& /*progress*/) override {
    if (new_sums_ != nullptr) std::exchange(new_sums_, nullptr)->Remove();
  }

  absl::StatusOr<FinishedContent> Finish(std::optional<uint32_t> total_crc32c) override {
    if (appended_ == 0) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                    "at least one token must be summed before a Gram matrix is finished; "
                    "0 are");
    }
    SPARSEFW_RETURN_IF_ERROR(MakeSum());
    FileWriter writer(*file_);
    try {
      SPARSEFW_RETURN_IF_ERROR(WriteResult(writer));
    } catch (const std::bad_alloc&) {
      return OutOfMemory("the result of a Gram accumulation");
    }
    if (total_crc32c && *total_crc32c != writer.crc32c()) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "total_crc32c must be the checksum of the Gram matrix, 0x%08x; got "
                    "0x%08x",
                    writer.crc32c(), *total_crc32c);
    }
    if (room_.durable) SPARSEFW_RETURN_IF_ERROR(file_->Sync());
    return FinishedContent{ResultSpec(spec_, appended_), writer.crc32c()};
  }

  CompleteTensor Take(const FinishedContent& finished) override {
    sum_.accumulator.reset();
    sum_.room.ShrinkTo(0);
    if (sums_ != nullptr) sums_->Remove();
    room_.host.ShrinkTo(ByteSize(finished.spec));
    room_.disk.ShrinkTo(ByteSize(finished.spec));
    return Complete(finished, false);
  }

  void Remove() override {
    if (sums_ != nullptr) sums_->Remove();
    UploadContent::Remove();
  }

 private:
  absl::Status Add(std::span<const std::byte> tokens, int64_t count) {
    const DType dtype = spec_.activation_dtype;
    try {
      std::vector<double> aligned;
      const std::byte* data = tokens.data();
      if (reinterpret_cast<uintptr_t>(data) % SizeOf(dtype) != 0) {
        aligned.resize((tokens.size() + sizeof(double) - 1) / sizeof(double));
        std::memcpy(aligned.data(), data, tokens.size());
        data = reinterpret_cast<const std::byte*>(aligned.data());
      }
      return OfDevice(sum_.accumulator->Add(ConstMatrixView(data, dtype, count, spec_.d_in)));
    } catch (const std::bad_alloc&) {
      return OutOfMemory("a chunk of activations");
    }
  }

  // An answer of the accumulator, which a device that fails leaves in no defined state: what is
  // saved, if anything can be, is summed on in a new one. The client sends the rest again.
  absl::Status OfDevice(absl::Status status) {
    if (status.ok() || absl::IsInvalidArgument(status)) return status;
    if (sums_ == nullptr && saved_.committed > 0) return status;
    sum_.accumulator.reset();
    sum_.room.ShrinkTo(0);
    appended_ = saved_.committed;
    return status;
  }

  // The sum of the saved tokens, where there is none yet.
  absl::Status MakeSum();
  absl::Status WriteResult(FileWriter& writer);
  absl::Status RestoreSum(GramAccumulator& sum) const;

  const GramSpec spec_;
  const int64_t token_bytes_;
  const std::shared_ptr<Accumulators> accumulators_;
  std::unique_ptr<SpoolFile> sums_;      // of the saved tokens; null: none
  std::unique_ptr<SpoolFile> new_sums_;  // between Save and what follows it
  Accumulators::Sum sum_;                // without an accumulator: not yet needed
  int64_t appended_ = 0;                 // tokens
};

absl::Status GramContent::MakeSum() {
  if (sum_.accumulator != nullptr) return absl::OkStatus();
  try {
    SPARSEFW_ASSIGN_OR_RETURN(Accumulators::Sum sum, accumulators_->Make(spec_.d_in));
    if (sums_ != nullptr) SPARSEFW_RETURN_IF_ERROR(RestoreSum(*sum.accumulator));
    sum_ = std::move(sum);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the sum of a Gram accumulation");
  }
  return absl::OkStatus();
}

// Rows of doubles, as the dtype of the result.
absl::Status GramContent::WriteResult(FileWriter& writer) {
  const int64_t cols = spec_.d_in;
  std::vector<double> doubles(static_cast<size_t>(std::min(kBlockRows, cols) * cols));
  std::vector<float> floats;
  for (int64_t row = 0; row < cols; row += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, cols - row);
    SPARSEFW_RETURN_IF_ERROR(OfDevice(sum_.accumulator->CopyRows(row, rows, doubles.data())));
    const std::span<const double> block(doubles.data(), static_cast<size_t>(rows * cols));
    SPARSEFW_RETURN_IF_ERROR(CheckGramRows(block, row, cols, spec_.gram_dtype));
    if (spec_.gram_dtype == DType::kF64) {
      SPARSEFW_RETURN_IF_ERROR(writer.Write(std::as_bytes(block)));
      continue;
    }
    floats.resize(block.size());
    std::ranges::transform(block, floats.begin(),
                           [](double value) { return static_cast<float>(value); });
    SPARSEFW_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(floats))));
  }
  return absl::OkStatus();
}

absl::Status GramContent::RestoreSum(GramAccumulator& sum) const {
  int64_t offset = 0;
  uint32_t crc32c = 0;
  const absl::Status restored = sum.RestoreState([&](std::span<std::byte> bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    if (offset + size > GramStateBytes(spec_.d_in)) return absl::OutOfRangeError("");
    SPARSEFW_RETURN_IF_ERROR(sums_->Read(offset, bytes));
    crc32c = ExtendCrc32c(crc32c, bytes);
    offset += size;
    return absl::OkStatus();
  });
  if (restored.ok() && crc32c == saved_.crc32c && sum.token_count() == saved_.committed) {
    return absl::OkStatus();
  }
  if (!restored.ok() && !absl::IsInvalidArgument(restored) && !absl::IsOutOfRange(restored)) {
    return restored;
  }
  return Refuse(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT",
                "the sums of a Gram accumulation must be what was written before the restart; "
                "they are not: delete the upload and send all tokens again");
}

// Writes a new file: a restart needs the old one until the record names the new one. It stays a
// part file: the upload's own file tells of both.
absl::StatusOr<UploadProgress> GramContent::Save() {
  UploadProgress progress = appended();
  SPARSEFW_RETURN_IF_ERROR(MakeSum());
  SPARSEFW_ASSIGN_OR_RETURN(progress.sums, RandomHex(kIdBytes));
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<SpoolFile> made,
                            room_.spool->Create(progress.sums, GramStateBytes(spec_.d_in)));
  NewSpoolFile file(std::move(made));
  FileWriter writer(*file);
  try {
    absl::Status written;
    const absl::Status state = sum_.accumulator->SaveState(
        [&](std::span<const std::byte> bytes) { return written = writer.Append(bytes); });
    SPARSEFW_RETURN_IF_ERROR(written.ok() ? OfDevice(state) : written);
    SPARSEFW_RETURN_IF_ERROR(writer.Flush());
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the state of a Gram accumulation");
  }
  Failpoint("gram.sums_written");
  SPARSEFW_RETURN_IF_ERROR(file->Sync());
  progress.crc32c = writer.crc32c();
  new_sums_ = file.Take();
  return progress;
}

}  // namespace

absl::StatusOr<int64_t> TokensIn(const GramSpec& spec, size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const int64_t token_bytes = spec.d_in * static_cast<int64_t>(SizeOf(spec.activation_dtype));
  if (size % token_bytes == 0) return size / token_bytes;
  return Invalid("PARTIAL_TOKEN",
                 "a chunk must be whole tokens of %d bytes (d_in=%d); got %d bytes", token_bytes,
                 spec.d_in, size);
}

std::unique_ptr<UploadContent> MakeGramContent(const GramSpec& spec, ContentRoom room,
                                               std::shared_ptr<Accumulators> accumulators) {
  return std::make_unique<GramContent>(spec, std::move(room), std::move(accumulators));
}

}  // namespace sparsefw::server
