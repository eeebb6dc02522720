// The bytes of a tensor, written to the spool as they come.
#include <algorithm>
#include <utility>
#include <vector>

#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr size_t kCompareBytes = size_t{256} << 10;

class TensorContent final : public UploadContent {
 public:
  TensorContent(const TensorSpec& spec, ContentRoom room)
      : UploadContent(std::move(room)), spec_(spec), size_(ByteSize(spec)) {}

  UploadKind kind() const override { return UploadKind::kTensor; }

  void Describe(UploadInfo& info) const override {
    info.spec = spec_;
    info.committed_size = saved_.committed;
    info.committed_crc32c = saved_.crc32c;
  }

  absl::Status Prepare() override {
    SPARSEFW_ASSIGN_OR_RETURN(file_, room_.spool->Create(room_.id, size_));
    return absl::OkStatus();
  }

  // A file of which no byte is named may be missing: a power loss takes it, since
  // only its record was brought to the disk.
  absl::Status Recover(const UploadProgress& progress) override {
    absl::StatusOr<std::unique_ptr<SpoolFile>> file = room_.spool->Adopt(room_.id, size_);
    if (!file.ok() && progress.committed == 0) {
      SPARSEFW_RETURN_IF_ERROR(room_.spool->Remove(room_.id));
      return Prepare();
    }
    SPARSEFW_RETURN_IF_ERROR(file.status());
    if (progress.committed > size_) {
      return Refuse(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT",
                    "an upload of %d bytes cannot have %d", size_, progress.committed);
    }
    file_ = *std::move(file);
    appended_ = saved_ = progress;
    synced_ = progress.committed;
    recovered_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) override {
    SPARSEFW_ASSIGN_OR_RETURN(
        const AppendRange range,
        PlanAppend(offset, static_cast<int64_t>(data.size()), appended_.committed, size_, "bytes"));
    const auto skipped = static_cast<size_t>(range.skip);
    SPARSEFW_RETURN_IF_ERROR(Compare(offset, data.first(skipped)));
    const auto fresh = data.subspan(skipped);
    if (!fresh.empty()) SPARSEFW_RETURN_IF_ERROR(file_->Write(appended_.committed, fresh));
    appended_.crc32c = ExtendCrc32c(appended_.crc32c, fresh);
    appended_.committed += range.count;
    return appended_.committed;
  }

  UploadProgress appended() const override { return appended_; }
  int64_t unsaved_bytes() const override { return appended_.committed - saved_.committed; }
  absl::StatusOr<UploadProgress> Save() override {
    SPARSEFW_RETURN_IF_ERROR(Sync());
    return appended_;
  }

  bool IsWrong(uint32_t total_crc32c) const override {
    return appended_.committed == size_ && total_crc32c != appended_.crc32c;
  }
  void Restart() override {
    appended_ = saved_ = UploadProgress();
    synced_ = 0;
    lost_ = absl::OkStatus();
  }

  absl::StatusOr<FinishedContent> Finish(std::optional<uint32_t> total_crc32c) override {
    if (appended_.committed != size_) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                    "all %d bytes of the tensor must be committed before it is finished; "
                    "%d are",
                    size_, appended_.committed);
    }
    if (total_crc32c && *total_crc32c != appended_.crc32c) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "total_crc32c must be the checksum of the %d bytes received, "
                    "0x%08x; got 0x%08x",
                    size_, appended_.crc32c, *total_crc32c);
    }
    if (room_.durable) SPARSEFW_RETURN_IF_ERROR(Sync());
    return FinishedContent{spec_, appended_.crc32c};
  }

  CompleteTensor Take(const FinishedContent& finished) override {
    return Complete(finished, recovered_);
  }

 private:
  // The kernel tells of bytes that it could not write once, and takes them for written then. So
  // nothing since the last sync counts any more, and the client sends it again. It cannot where it
  // was told of such bytes, as that of a stream whose progress is not recorded.
  absl::Status Sync() {
    SPARSEFW_RETURN_IF_ERROR(lost_);
    if (absl::Status synced = file_->Sync(); !synced.ok()) {
      if (synced_ < saved_.committed) lost_ = synced;
      appended_ = saved_;
      return synced;
    }
    synced_ = appended_.committed;
    return absl::OkStatus();
  }

  // Bytes that were sent before must be what they were then.
  absl::Status Compare(int64_t offset, std::span<const std::byte> again) const {
    std::vector<std::byte> known(std::min(again.size(), kCompareBytes));
    while (!again.empty()) {
      const auto part = again.first(std::min(again.size(), kCompareBytes));
      const std::span<std::byte> there(known.data(), part.size());
      SPARSEFW_RETURN_IF_ERROR(file_->Read(offset, there));
      const auto differing = std::ranges::mismatch(part, there);
      if (differing.in1 != part.end()) {
        return BytesDiffer(offset + (differing.in1 - part.begin()));
      }
      again = again.subspan(part.size());
      offset += static_cast<int64_t>(part.size());
    }
    return absl::OkStatus();
  }

  const TensorSpec spec_;
  const int64_t size_;
  UploadProgress appended_;
  int64_t synced_ = 0;      // bytes
  absl::Status lost_;       // why the upload can never be finished
  bool recovered_ = false;  // some bytes are of an earlier run
};

}  // namespace

absl::Status BytesDiffer(int64_t offset) {
  return Refuse(absl::StatusCode::kDataLoss, "BYTES_DIFFER",
                "bytes that are sent again must be those committed before; byte %d is another one",
                offset);
}

std::unique_ptr<UploadContent> MakeTensorContent(const TensorSpec& spec, ContentRoom room) {
  return std::make_unique<TensorContent>(spec, std::move(room));
}

}  // namespace sparsefw::server
