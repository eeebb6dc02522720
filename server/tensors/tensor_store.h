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
#include "server/identity/owner.h"
#include "server/identity/tenants.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/store_incident.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/backend.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::server {

class MappedBytes;
class StoredTensor;

struct TensorInfo {
  std::string name;  // "tensors/<id>"
  TensorSpec spec;
  int64_t byte_size = 0;
  uint32_t crc32c = 0;
  absl::Time create_time;
  absl::Time expire_time = absl::InfiniteFuture();
  Owner owner;
  int reference_count = 0;  // jobs that hold it
};

struct UploadInfo {
  std::string name;              // "uploads/<id>"
  TensorSpec spec;               // of the tensor it becomes
  std::optional<GramSpec> gram;  // set when it is an accumulation
  int64_t committed_size = 0;
  int64_t committed_tokens = 0;
  uint32_t committed_crc32c = 0;
  Owner owner;
  absl::Time create_time;
  absl::Time expire_time;
};

enum class UploadKind { kTensor, kGram };

// How long what a client uploads lives.
enum class UploadLife {
  kResumable,  // the upload goes on after a restart, the tensor stays
  kStream,     // the upload belongs to one stream and ends with the process, the tensor stays
  kJob,        // the same, and the tensor belongs to one job: see ReleaseTransient
};

// A tensor held open: its bytes stay mapped while this lives, whatever becomes of
// the tensor. Immutable, thread-safe.
class TensorHandle {
 public:
  TensorHandle(std::shared_ptr<const StoredTensor> tensor,
               std::shared_ptr<const MappedBytes> mapped);

  const TensorInfo& info() const { return info_; }
  std::span<const std::byte> bytes() const;
  // Not for U1.
  ConstMatrixView matrix() const;
  // For U1. Errors: InvalidArgument when a padding bit is set.
  absl::StatusOr<Mask> mask() const;
  // The result of the first `check` of this tensor, on whatever handle: later
  // calls do not run theirs, calls meanwhile wait for it. It says whether the
  // values are good, and depends on nothing but the tensor.
  absl::Status CheckValues(absl::FunctionRef<absl::Status()> check) const;

 private:
  const std::shared_ptr<const StoredTensor> tensor_;  // released last: after the bytes are unmapped
  const TensorInfo info_;
  const std::shared_ptr<const MappedBytes> mapped_;
};

struct TensorStoreOptions {
  // Made if it is not there; one server's at a time. Files with names of our own
  // that the catalog does not name are removed, anything else is left alone. The folder
  // remembers its catalog: see CheckMatch.
  std::string spool_dir;
  // Records of tensors and uploads. Null: in memory, so that the files of an earlier
  // run are removed. Outlives the store.
  TensorCatalog* catalog = nullptr;
  bool discard_unmatched = false;           // whatever CheckMatch says
  int64_t budget_bytes = int64_t{8} << 30;  // uploads reserve their full size from it
  int64_t max_tensor_bytes = int64_t{64} << 30;
  // Tensors, uploads and results of accepted jobs together: small ones cost more than their
  // bytes.
  int64_t max_tensors = 100'000;
  bool many_tenants = false;      // none may take up all of max_tensors: see TenantAccounts
  int64_t disk_budget_bytes = 0;  // of all files together; 0: what the disk has
  // The disk budget that others than this store take now. Must not call the store; called only
  // where there is a budget. Empty: nothing.
  std::function<int64_t()> disk_used_beside;
  // An upload is committed after so many bytes also without anybody being told, so that
  // little is lost with a process that is killed in the middle of a long stream. An
  // accumulation waits for four times the size of its state at least.
  int64_t commit_interval_bytes = int64_t{256} << 20;
  absl::Duration upload_idle_ttl = absl::Minutes(10);  // counted anew after a restart
  // Uploaded tensors expire so long after their last use.
  absl::Duration tensor_ttl = absl::InfiniteDuration();
  LimitsOfTenant limits_of;               // of bytes, tensors and uploads; must not call the store
  const Backend* gram_backend = nullptr;  // makes Gram accumulators; required
  // Accumulators may take so much of the memory of gram_backend's device. Those that have no room
  // there are made on the CPU.
  int64_t device_sum_bytes = 0;
  int gram_threads = 0;
  std::function<absl::Time()> now;         // absl::Now when empty
  std::function<absl::Time()> steady_now;  // SteadyNow when empty
  // Called by Open and by a thread of the store; must not call the store.
  OnStoreIncident on_incident;
};

struct TensorStoreUsage {
  int64_t budget_bytes = 0;
  int64_t used_bytes = 0;  // complete tensors, uploads (reserved in full), accumulators
  int64_t device_sum_budget_bytes = 0;
  int64_t device_sum_used_bytes = 0;
  int64_t sums_without_room = 0;  // accumulators made on the CPU for want of it, since the start
  int64_t disk_budget_bytes = 0;  // 0: none
  int64_t disk_used_bytes = 0;
  int64_t tensors = 0;
  int64_t uploads = 0;
  int64_t max_tensors = 0;  // for these together, and
  int64_t reserved = 0;     // results of accepted jobs
  int64_t unchecked = 0;    // tensors of an earlier run whose bytes were not read yet
  int64_t corrupt = 0;      // found since the start
};

// The answer for a name that the store does not have.
absl::Status UploadNotFound(std::string_view name);  // NotFound (UPLOAD_NOT_FOUND)
absl::Status TensorNotFound(std::string_view name);  // NotFound (TENSOR_NOT_FOUND)

// Which tensors a list has; what is empty chooses all.
struct TensorFilter {
  std::string tenant = {};
  std::vector<TensorKind> kinds = {};
  std::string owner = {};  // the name that the client gave
};

// Owns the spool folder and everything in it. Thread-safe. Calls on distinct
// uploads run in parallel; calls on one upload are serialised. Writes go to
// disk in the calling thread: never call from a thread that must not block.
//
// Invariants: committed_size and committed_tokens only grow, but for a total checksum
// that is wrong. A tensor becomes visible in one step, complete and checked. The sum
// of reservations never exceeds a budget, but for what was there at the start. A file
// or catalog that cannot be written leaves the upload at its last good byte.
//
// With a durable catalog, what a client may be told is on the disk: a committed size
// or token count (Commit, GetUpload, metadata of errors), a tensor. In between
// nothing is synced. Files are synced before a record names their bytes, and removed
// after the record that names them. The next store on the folder has the same
// tensors, numbers and page tokens, and uploads go on from their last commit.
class TensorStore {
 public:
  // Errors: InvalidArgument     OPTION_INVALID
  //         FailedPrecondition  the folder is in use by another server (SPOOL_IN_USE), or
  //                             is not that of the catalog (SPOOL_MISMATCH)
  //         PermissionDenied / Internal  it cannot be made or written (SPOOL_FAILED)
  static absl::StatusOr<std::unique_ptr<TensorStore>> Open(TensorStoreOptions options);
  virtual ~TensorStore() = default;

  // Idempotent by request_id when it is not empty: the same id, spec, owner and `fingerprint` give
  // the same upload, or the tensor that it became; forgotten with either. The fingerprint stands
  // for the rest of the client's request. An upload made without a fingerprint is compared without
  // it, except an open upload of a client: it is never that of another stream. An accumulation
  // reserves 8 * d_in^2 bytes for its sums besides the result. request_id and owner are kept as
  // long as the tensor: the caller bounds them. A request_id is one of its tenant's.
  // Errors: InvalidArgument     SPEC_INVALID, REQUEST_ID_REUSED (also for
  //                             another owner name or fingerprint)
  //         ResourceExhausted   TENSOR_TOO_LARGE (never fits; metadata max_bytes),
  //                             HOST_MEMORY (does not fit now; metadata
  //                             retry_delay_ms), TOO_MANY_TENSORS (likewise),
  //                             DISK_BUDGET (likewise), SPOOL_FULL, STORE_FULL
  //                             (the disk is full); QUOTA_UPLOADS, QUOTA_TENSORS,
  //                             QUOTA_TENSOR_BYTES: the owner's tenant's
  //                             (TenantAccounts)
  virtual absl::StatusOr<std::variant<UploadInfo, TensorInfo>> CreateUpload(
      const UploadSpec& spec, std::string_view request_id, const Owner& owner,
      UploadLife life = UploadLife::kResumable, std::string_view fingerprint = {}) = 0;

  // Writes [offset, offset + data.size()). Bytes that are there already are compared
  // and skipped, also those of a tensor that the upload has become. Returns how many are
  // there: a client must not be told of them before Commit.
  // Errors: NotFound            no such upload (UPLOAD_NOT_FOUND)
  //         FailedPrecondition  OFFSET_GAP (metadata committed_size)
  //         DataLoss            CHECKSUM_MISMATCH; BYTES_DIFFER from those
  //                             there already (metadata committed_size)
  //         OutOfRange          past the end of the tensor (OFFSET_OUT_OF_RANGE;
  //                             metadata committed_size)
  //         InvalidArgument     negative offset (OFFSET_INVALID); not a tensor
  //                             upload (WRONG_UPLOAD_KIND)
  //         ResourceExhausted   the disk is full (SPOOL_FULL; metadata committed_size)
  //         Internal / Unavailable  the disk fails (SPOOL_FAILED; metadata committed_size)
  absl::StatusOr<int64_t> Write(std::string_view upload, int64_t offset,
                                std::span<const std::byte> data, uint32_t crc32c) {
    return Append(upload, UploadKind::kTensor, offset, data, crc32c);
  }
  // Sums whole tokens. Returns how many are summed: as Write. Tokens already summed
  // are skipped unseen, so a chunk may overlap the end; of a sum that is a tensor by now it
  // may not (OFFSET_OUT_OF_RANGE). A chunk with a NaN or infinity is refused whole. Errors: as
  // Write, with metadata committed_tokens; InvalidArgument NON_FINITE, PARTIAL_TOKEN.
  absl::StatusOr<int64_t> Accumulate(std::string_view upload, int64_t token_offset,
                                     std::span<const std::byte> data, uint32_t crc32c) {
    return Append(upload, UploadKind::kGram, token_offset, data, crc32c);
  }
  // Write or Accumulate, by the kind of the upload.
  virtual absl::StatusOr<int64_t> Append(std::string_view upload, UploadKind kind, int64_t offset,
                                         std::span<const std::byte> data, uint32_t crc32c) = 0;

  // Brings what was written or summed to the disk: committed_size and
  // committed_tokens are what a client may be told. Errors: NotFound; as Write, and
  // STORE_FULL, STORE_FAILED, with the metadata of what is committed
  virtual absl::StatusOr<UploadInfo> Commit(std::string_view upload) = 0;

  // Makes the tensor. Idempotent: of an upload finished before, the tensor. An
  // upload that cannot be finished stays as it is.
  // Errors: NotFound            no such upload, nor a tensor that it became
  //                             (UPLOAD_NOT_FOUND)
  //         FailedPrecondition  INCOMPLETE (metadata committed_size or
  //                             committed_tokens; no token at all)
  //         DataLoss            CHECKSUM_MISMATCH over the whole: the upload is at 0
  //                             again, for a client that has the right bytes; that of
  //                             an accumulation stays as it is
  //         InvalidArgument     a sum beyond the range of F32 (NON_FINITE)
  //         ResourceExhausted / Internal  as Write, for a Gram matrix
  virtual absl::StatusOr<TensorInfo> Finish(std::string_view upload,
                                            std::optional<uint32_t> total_crc32c) = 0;

  // Commits as far as it can. NotFound (UPLOAD_NOT_FOUND), also once it is finished,
  // deleted or expired.
  virtual absl::StatusOr<UploadInfo> GetUpload(std::string_view name) = 0;
  virtual absl::Status DeleteUpload(std::string_view name) = 0;

  // Whether there could ever be such room. Errors: ResourceExhausted (TENSOR_TOO_LARGE,
  // TOO_MANY_TENSORS)
  virtual absl::Status CheckRoom(const RoomNeed& need) const = 0;
  // Room for what Put will store later. Errors: ResourceExhausted as CreateUpload
  virtual absl::StatusOr<TensorRoom> ReserveRoom(const RoomNeed& need, const Owner& owner) = 0;
  // The same for what was accepted before: it counts, whatever limits it exceeds.
  virtual TensorRoom KeepRoom(const RoomNeed& need, const Owner& owner) = 0;
  // Stores what the server makes itself: masks, pruned weights. Takes the room out of `room`, so
  // that no budget refuses it; null: reserves it now. `job` is the name of the job whose result it
  // is. Errors: as Write; as CreateUpload where `room` is null; SPEC_INVALID when the size is not
  // that of the spec.
  virtual absl::StatusOr<TensorInfo> Put(const TensorSpec& spec, std::span<const std::byte> bytes,
                                         const Owner& owner, absl::Time expire_time,
                                         TensorRoom* room = nullptr, std::string_view job = {}) = 0;
  // Deletes what was Put for a job, which begins anew after an interruption that came
  // between its results and the record of its end. Returns how many; those that
  // another job holds stay.
  virtual int64_t DeleteResultsOf(std::string_view job) = 0;

  // Errors: NotFound (TENSOR_NOT_FOUND)
  virtual absl::StatusOr<TensorInfo> GetTensor(std::string_view name) = 0;
  // A handle for a job: the tensor cannot be deleted while the handle lives. The bytes of a tensor
  // of an earlier run are checked before its first use.
  // Errors: NotFound; DataLoss (TENSOR_CORRUPT); as Write
  virtual absl::StatusOr<std::shared_ptr<const TensorHandle>> Acquire(std::string_view name) = 0;
  // A handle for a reader, which may be slow: the tensor can still be deleted.
  // Errors: as Acquire
  virtual absl::StatusOr<std::shared_ptr<const TensorHandle>> OpenForReading(
      std::string_view name) = 0;
  // NotFound; FailedPrecondition (TENSOR_IN_USE; metadata reference_count)
  // while a handle of Acquire is held.
  virtual absl::Status DeleteTensor(std::string_view name) = 0;
  // A job has released its input: deletes a tensor of UploadLife::kJob, so that only the job's
  // result stays. While another job holds it, that one's release does.
  virtual void ReleaseTransient(std::string_view name) = 0;
  // The same for all of them: called once the jobs of an earlier run hold their inputs again, and
  // before there are new ones.
  virtual void ReleaseTransientLeft() = 0;
  struct Page {
    std::vector<TensorInfo> tensors;  // newest first
    std::string next_page_token;
  };
  // A walk over the pages meets every tensor once that is there all the time.
  // Errors: InvalidArgument (PAGE_TOKEN_INVALID; PAGE_SIZE_INVALID below 1)
  virtual absl::StatusOr<Page> ListTensors(int page_size, std::string_view page_token,
                                           const TensorFilter& filter = {}) = 0;
  struct UploadPage {
    std::vector<UploadInfo> uploads;  // newest first, committed as by GetUpload
    std::string next_page_token;
  };
  // The uploads that have not ended; an empty tenant: those of all. A page may be short. Errors:
  // as ListTensors
  virtual absl::StatusOr<UploadPage> ListUploads(int page_size, std::string_view page_token,
                                                 std::string_view tenant = {}) = 0;

  // Drops idle uploads and expired tensors that nobody holds.
  virtual void CollectGarbage() = 0;
  virtual TensorStoreUsage usage() const = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_
