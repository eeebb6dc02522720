// The bytes of a tensor, written to the spool as they come.
#include <utility>

#include "absl/strings/str_format.h"
#include "server/tensors/uploads/upload_content.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

class TensorContent final : public UploadContent {
 public:
  TensorContent(const TensorSpec& spec, std::string id, std::shared_ptr<Spool> spool,
                ByteBudget::Reservation reservation)
      : spec_(spec),
        size_(ByteSize(spec)),
        id_(std::move(id)),
        spool_(std::move(spool)),
        reservation_(std::move(reservation)) {}

  UploadKind kind() const override { return UploadKind::kTensor; }

  void Describe(UploadInfo& info) const override {
    info.spec = spec_;
    info.committed_size = committed_;
    info.committed_crc32c = crc32c_;
  }

  ReasonMetadata Progress() const override {
    return {{"committed_size", absl::StrFormat("%d", committed_)}};
  }

  absl::Status Prepare() override {
    SPARSEFW_ASSIGN_OR_RETURN(file_, spool_->Create(id_, size_));
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) override {
    SPARSEFW_ASSIGN_OR_RETURN(
        const AppendRange range,
        PlanAppend(offset, static_cast<int64_t>(data.size()), committed_, size_, "bytes"));
    const auto fresh = data.subspan(static_cast<size_t>(range.skip));
    if (!fresh.empty()) SPARSEFW_RETURN_IF_ERROR(file_->Write(committed_, fresh));
    crc32c_ = ExtendCrc32c(crc32c_, fresh);
    committed_ += range.count;
    return committed_;
  }

  absl::StatusOr<CompleteTensor> Finish(std::optional<uint32_t> total_crc32c) override {
    if (committed_ != size_) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "INCOMPLETE",
                    "all %d bytes of the tensor must be committed before it is finished; "
                    "%d are",
                    size_, committed_);
    }
    if (total_crc32c && *total_crc32c != crc32c_) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "total_crc32c must be the checksum of the %d bytes received, "
                    "0x%08x; got 0x%08x",
                    size_, crc32c_, *total_crc32c);
    }
    return CompleteTensor{spec_, crc32c_, std::move(file_), std::move(reservation_)};
  }

 private:
  const TensorSpec spec_;
  const int64_t size_;
  const std::string id_;
  const std::shared_ptr<Spool> spool_;
  ByteBudget::Reservation reservation_;
  std::unique_ptr<SpoolFile> file_;
  int64_t committed_ = 0;
  uint32_t crc32c_ = 0;  // of the committed bytes
};

}  // namespace

std::unique_ptr<UploadContent> MakeTensorContent(const TensorSpec& spec, std::string id,
                                                 std::shared_ptr<Spool> spool,
                                                 ByteBudget::Reservation reservation) {
  return std::make_unique<TensorContent>(spec, std::move(id), std::move(spool),
                                         std::move(reservation));
}

}  // namespace sparsefw::server
