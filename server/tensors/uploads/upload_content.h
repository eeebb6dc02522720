// Received content of an upload: bytes of a tensor, or a sum over tokens.
#ifndef SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_
#define SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/byte_budget.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {

enum class UploadKind { kTensor, kGram };

// Not thread-safe: Upload serialises the calls. A call that fails leaves the
// content as it was, at its last good byte or token.
class UploadContent {
 public:
  virtual ~UploadContent() = default;

  virtual UploadKind kind() const = 0;
  // Fills in spec, gram and the committed fields.
  virtual void Describe(UploadInfo& info) const = 0;
  // Metadata of every error, from which the client resumes.
  virtual ReasonMetadata Progress() const = 0;

  // Takes room on the disk and in memory. Called once, first.
  virtual absl::Status Prepare() = 0;
  // `offset` counts bytes or tokens; what lies below the committed ones is
  // skipped. Returns how many are committed. Errors: see TensorStore.
  virtual absl::StatusOr<int64_t> Append(int64_t offset, std::span<const std::byte> data) = 0;
  // Not called again after it has succeeded.
  virtual absl::StatusOr<CompleteTensor> Finish(std::optional<uint32_t> total_crc32c) = 0;
};

std::unique_ptr<UploadContent> MakeTensorContent(const TensorSpec& spec, std::string id,
                                                 std::shared_ptr<Spool> spool,
                                                 ByteBudget::Reservation reservation);
// `backend` must outlive the content.
std::unique_ptr<UploadContent> MakeGramContent(const GramSpec& spec, std::string id,
                                               std::shared_ptr<Spool> spool,
                                               ByteBudget::Reservation reservation,
                                               const Backend* backend, int threads);

// The arithmetic of a resumable stream of units (bytes or tokens).
struct AppendRange {
  int64_t skip = 0;   // units at the front that are committed already
  int64_t count = 0;  // units after them that are new
};
// `committed` and `limit` with 0 <= committed <= limit; `count` at least 0.
// Errors: InvalidArgument     offset < 0 (OFFSET_INVALID)
//         OutOfRange          offset + count beyond limit (OFFSET_OUT_OF_RANGE)
//         FailedPrecondition  offset beyond committed (OFFSET_GAP)
absl::StatusOr<AppendRange> PlanAppend(int64_t offset, int64_t count, int64_t committed,
                                       int64_t limit, std::string_view unit);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_UPLOADS_UPLOAD_CONTENT_H_
