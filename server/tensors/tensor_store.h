// Tensors as files in a spool folder, memory-mapped, under a byte budget.
#ifndef SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_
#define SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tensors/store/byte_budget.h"
#include "sparsefw/backend.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::server {

enum class TensorKind { kWeight, kGram, kSaliency, kMask, kPrunedWeight };
// The dtypes of the wire: core's, and the packed one-bit mask.
enum class TensorDType { kF32, kF16, kBF16, kF64, kU1 };

struct TensorSpec {
  TensorKind kind = TensorKind::kWeight;
  TensorDType dtype = TensorDType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t token_count = 0;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct GramSpec {
  int64_t d_in = 0;
  TensorDType activation_dtype = TensorDType::kF32;
  TensorDType gram_dtype = TensorDType::kF32;
  friend bool operator==(const GramSpec&, const GramSpec&) = default;
};

// Errors: InvalidArgument (SPEC_INVALID): kind/dtype pairing, a dimension below
// 1, a size beyond int64, a Gram that is not square.
absl::Status ValidateSpec(const TensorSpec& spec);
absl::Status ValidateSpec(const GramSpec& spec);
// Of a valid spec. U1 rows are padded to whole bytes.
int64_t ByteSize(const TensorSpec& spec);

struct TensorInfo {
  std::string name;  // "tensors/<id>"
  TensorSpec spec;
  int64_t byte_size = 0;
  uint32_t crc32c = 0;
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  std::string owner;
  int reference_count = 0;
};

struct UploadInfo {
  std::string name;              // "uploads/<id>"
  TensorSpec spec;               // of the tensor it becomes
  std::optional<GramSpec> gram;  // set when it is an accumulation
  int64_t committed_size = 0;
  int64_t committed_tokens = 0;
  uint32_t committed_crc32c = 0;
  absl::Time create_time;
  absl::Time expire_time;
};

// A tensor held open: its bytes stay mapped and it cannot be deleted while
// this lives. Immutable, thread-safe.
class TensorHandle {
 public:
  virtual ~TensorHandle() = default;
  virtual const TensorInfo& info() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;
  // Not for U1.
  virtual ConstMatrixView matrix() const = 0;
  // For U1. Errors: InvalidArgument when a padding bit is set.
  virtual absl::StatusOr<Mask> mask() const = 0;
  // The result of the first `check` of this tensor, on whatever handle: later
  // calls do not run theirs, calls meanwhile wait for it. It says whether the
  // values are good, and depends on nothing but the tensor.
  virtual absl::Status CheckValues(absl::FunctionRef<absl::Status()> check) const = 0;
};

struct TensorStoreOptions {
  // Made if it is not there; one server's at a time. Tensors left in it by an
  // earlier run are removed, anything else is left alone.
  std::string spool_dir;
  int64_t budget_bytes = int64_t{8} << 30;  // uploads reserve their full size from it
  int64_t max_tensor_bytes = int64_t{64} << 30;
  // Tensors and uploads together: small ones cost more than their bytes.
  int64_t max_entries = 100'000;
  absl::Duration upload_idle_ttl = absl::Minutes(10);
  const Backend* gram_backend = nullptr;  // makes Gram accumulators; required
  int gram_threads = 0;
  std::function<absl::Time()> now;  // absl::Now when empty
};

struct TensorStoreUsage {
  int64_t budget_bytes = 0;
  int64_t used_bytes = 0;  // complete tensors, uploads (reserved in full), accumulators
  int64_t tensors = 0;
  int64_t uploads = 0;
};

// Owns the spool folder and everything in it. Thread-safe. Calls on distinct
// uploads run in parallel; calls on one upload are serialised. Writes go to
// disk in the calling thread: never call from a thread that must not block.
//
// Invariants: committed_size and committed_tokens only grow. A tensor becomes
// visible in one step, complete and checked. The sum of reservations never
// exceeds the budget. A file that cannot be written leaves the upload at its
// last good byte.
class TensorStore {
 public:
  // Errors: InvalidArgument     OPTION_INVALID
  //         FailedPrecondition  the folder is in use by another server (SPOOL_IN_USE)
  //         PermissionDenied / Internal  it cannot be made or written (SPOOL_FAILED)
  static absl::StatusOr<std::unique_ptr<TensorStore>> Open(TensorStoreOptions options);
  virtual ~TensorStore() = default;

  // Idempotent by request_id when it is not empty: the same id and spec give
  // the same upload, or the tensor that it became; forgotten with either. An
  // accumulation reserves 8 * d_in^2 bytes for its sums besides the result.
  // request_id and owner are kept as long as the tensor: the caller bounds them.
  // Errors: InvalidArgument     SPEC_INVALID, REQUEST_ID_REUSED (also for
  //                             another owner)
  //         ResourceExhausted   TENSOR_TOO_LARGE (never fits; metadata max_bytes),
  //                             HOST_MEMORY (does not fit now; metadata
  //                             retry_delay_ms), TOO_MANY_TENSORS (likewise),
  //                             SPOOL_FULL (the disk is full)
  virtual absl::StatusOr<std::variant<UploadInfo, TensorInfo>> CreateUpload(
      const TensorSpec& spec, std::string_view request_id, std::string_view owner) = 0;
  virtual absl::StatusOr<std::variant<UploadInfo, TensorInfo>> CreateGramUpload(
      const GramSpec& spec, std::string_view request_id, std::string_view owner) = 0;

  // Writes [offset, offset + data.size()). Bytes below committed_size are
  // checked and skipped. Returns committed_size.
  // Errors: NotFound            no such upload (UPLOAD_NOT_FOUND)
  //         FailedPrecondition  OFFSET_GAP (metadata committed_size)
  //         DataLoss            CHECKSUM_MISMATCH (metadata committed_size)
  //         OutOfRange          past the end of the tensor (OFFSET_OUT_OF_RANGE;
  //                             metadata committed_size)
  //         InvalidArgument     negative offset (OFFSET_INVALID); not a tensor
  //                             upload (WRONG_UPLOAD_KIND)
  //         ResourceExhausted   the disk is full (SPOOL_FULL; metadata committed_size)
  //         Internal / Unavailable  the disk fails (SPOOL_FAILED; metadata committed_size)
  virtual absl::StatusOr<int64_t> Write(std::string_view upload, int64_t offset,
                                        std::span<const std::byte> data, uint32_t crc32c) = 0;
  // Sums whole tokens. Returns committed_tokens. Tokens already summed are
  // skipped, so a chunk may overlap the end. A chunk with a NaN or infinity is
  // refused whole. Errors: as Write, with metadata committed_tokens;
  // InvalidArgument NON_FINITE, PARTIAL_TOKEN.
  virtual absl::StatusOr<int64_t> Accumulate(std::string_view upload, int64_t token_offset,
                                             std::span<const std::byte> data, uint32_t crc32c) = 0;

  // Makes the tensor. Idempotent: of an upload finished before, the tensor. An
  // upload that cannot be finished stays as it is.
  // Errors: NotFound            no such upload, nor a tensor that it became
  //                             (UPLOAD_NOT_FOUND)
  //         FailedPrecondition  INCOMPLETE (metadata committed_size or
  //                             committed_tokens; no token at all)
  //         DataLoss            CHECKSUM_MISMATCH over the whole
  //         InvalidArgument     a sum beyond the range of F32 (NON_FINITE)
  //         ResourceExhausted / Internal  as Write, for a Gram matrix
  virtual absl::StatusOr<TensorInfo> Finish(std::string_view upload,
                                            std::optional<uint32_t> total_crc32c) = 0;

  // NotFound (UPLOAD_NOT_FOUND), also once it is finished, deleted or expired.
  virtual absl::StatusOr<UploadInfo> GetUpload(std::string_view name) = 0;
  virtual absl::Status DeleteUpload(std::string_view name) = 0;

  // Room in the budget for what Put will store later. Errors: ResourceExhausted
  // (TENSOR_TOO_LARGE, HOST_MEMORY) as CreateUpload.
  virtual absl::StatusOr<ByteBudget::Reservation> ReserveRoom(int64_t bytes) = 0;
  // What the server makes itself: masks, pruned weights. Takes its bytes out of
  // `room` when there are as many in it, out of the budget otherwise. Errors: as
  // CreateUpload and Write; SPEC_INVALID when the size is not that of the spec.
  virtual absl::StatusOr<TensorInfo> Put(const TensorSpec& spec, std::span<const std::byte> bytes,
                                         std::string_view owner, absl::Time expire_time,
                                         ByteBudget::Reservation* room = nullptr) = 0;

  // Errors: NotFound (TENSOR_NOT_FOUND)
  virtual absl::StatusOr<TensorInfo> GetTensor(std::string_view name) = 0;
  virtual absl::StatusOr<std::shared_ptr<const TensorHandle>> Acquire(std::string_view name) = 0;
  // NotFound; FailedPrecondition (TENSOR_IN_USE; metadata reference_count)
  // while a handle is held.
  virtual absl::Status DeleteTensor(std::string_view name) = 0;
  struct Page {
    std::vector<TensorInfo> tensors;  // newest first
    std::string next_page_token;
  };
  // A walk over the pages meets every tensor once that is there all the time.
  // Errors: InvalidArgument (PAGE_TOKEN_INVALID; PAGE_SIZE_INVALID below 1)
  virtual absl::StatusOr<Page> ListTensors(int page_size, std::string_view page_token) = 0;

  // Drops idle uploads and expired tensors that nobody holds.
  virtual void CollectGarbage() = 0;
  virtual TensorStoreUsage usage() const = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_
