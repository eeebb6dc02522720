// Tensors as files in a spool folder, memory-mapped, under a byte budget.
#ifndef SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_
#define SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/store/age_table.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/store/tenant_accounts.h"
#include "server/tensors/tensor_info.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

class Accumulators;
class Spool;
class Upload;
class UploadContent;
struct ContentRoom;
struct FinishedContent;

// Owns the spool folder and everything in it. Thread-safe. Calls on distinct
// uploads run in parallel; calls on one upload are serialised. Writes go to
// disk in the calling thread: never call from a thread that must not block.
//
// Invariants: committed_size and committed_tokens only grow, but for a total checksum
// that is wrong. A tensor becomes visible in one step, complete and checked. The sum
// of reservations never exceeds a budget, but for what was there at the start. A file
// or catalog that cannot be written leaves the upload at its last good byte.
//
// With a durable catalog, what a client may know is on the disk: a committed size
// or token count (Commit, GetUpload, metadata of errors), a tensor. In between
// nothing is synced. Files are synced before a record names their bytes, and removed
// after the record that names them. The next store on the folder has the same
// tensors, numbers and page tokens, and uploads go on from their last commit.
//
// Locks: an upload's, then this store's; the store's is held for table look-ups only, never while
// the disk or the catalog is touched or an upload is called. Tensors come as files before records
// before tables, and go the other way round.
class TensorStore {
 public:
  // Errors: InvalidArgument     OPTION_INVALID
  //         FailedPrecondition  the folder is in use by another server (SPOOL_IN_USE), or
  //                             is not that of the catalog (SPOOL_MISMATCH)
  //         PermissionDenied / Internal  it cannot be made or written (SPOOL_FAILED)
  static absl::StatusOr<std::unique_ptr<TensorStore>> Open(TensorStoreOptions options);
  // Over another spool; `options.spool_dir` is only named in messages then.
  static absl::StatusOr<std::unique_ptr<TensorStore>> Open(TensorStoreOptions options,
                                                           std::shared_ptr<Spool> spool);
  ~TensorStore();

  using Created = std::variant<UploadInfo, TensorInfo>;

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
  absl::StatusOr<Created> CreateUpload(const UploadSpec& spec, std::string_view request_id,
                                       const Owner& owner, UploadLife life = UploadLife::kResumable,
                                       std::string_view fingerprint = {});

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
  absl::StatusOr<int64_t> Append(std::string_view upload, UploadKind kind, int64_t offset,
                                 std::span<const std::byte> data, uint32_t crc32c);

  // Brings what was written or summed to the disk: committed_size and
  // committed_tokens are what a client may rely on. Errors: NotFound; as Write, and
  // STORE_FULL, STORE_FAILED, with the metadata of what is committed
  absl::StatusOr<UploadInfo> Commit(std::string_view upload);

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
  absl::StatusOr<TensorInfo> Finish(std::string_view upload, std::optional<uint32_t> total_crc32c);

  // Commits as far as it can. NotFound (UPLOAD_NOT_FOUND), also once it is finished,
  // deleted or expired.
  absl::StatusOr<UploadInfo> GetUpload(std::string_view name);
  // Also of an upload that became a tensor; touches no disk. NotFound (UPLOAD_NOT_FOUND)
  absl::StatusOr<Owner> OwnerOfUpload(std::string_view name);
  absl::Status DeleteUpload(std::string_view name);
  // Counts as a write to it, for a stream that writes another upload first.
  void TouchUpload(std::string_view name);

  // Whether there could ever be such room. Errors: ResourceExhausted (TENSOR_TOO_LARGE,
  // TOO_MANY_TENSORS)
  absl::Status CheckRoom(const RoomNeed& need) const;
  // Room for what Put will store later. Errors: ResourceExhausted as CreateUpload
  absl::StatusOr<TensorRoom> ReserveRoom(const RoomNeed& need, const Owner& owner);
  // The same for what was accepted before: it counts, whatever limits it exceeds.
  TensorRoom KeepRoom(const RoomNeed& need, const Owner& owner);
  // Stores what the server makes itself: masks, pruned weights. Takes the room out of `room`, so
  // that no budget refuses it; null: reserves it now. `job` is the name of the job whose result it
  // is. Errors: as Write; as CreateUpload where `room` is null; SPEC_INVALID when the size is not
  // that of the spec.
  absl::StatusOr<TensorInfo> Put(const TensorSpec& spec, std::span<const std::byte> bytes,
                                 const Owner& owner, absl::Time expire_time,
                                 TensorRoom* room = nullptr, std::string_view job = {});
  // Deletes what was Put for a job, which begins anew after an interruption that came
  // between its results and the record of its end. Returns how many; those that
  // another job holds go once it lets go of them.
  int64_t DeleteResultsOf(std::string_view job);

  // Errors: NotFound (TENSOR_NOT_FOUND)
  absl::StatusOr<TensorInfo> GetTensor(std::string_view name);
  // A handle for a job: the tensor cannot be deleted while the handle lives. The bytes of a tensor
  // of an earlier run are checked before its first use.
  // Errors: NotFound; DataLoss (TENSOR_CORRUPT); Cancelled by `stop`; as Write
  absl::StatusOr<std::shared_ptr<const TensorHandle>> Acquire(std::string_view name,
                                                              const StopSignal* stop = nullptr) {
    return OpenTensor(name, true, stop);
  }
  // The same, but without the bytes: its file is not read, nor looked at.
  // Errors: NotFound
  absl::StatusOr<std::shared_ptr<const TensorHandle>> Hold(std::string_view name);
  // A handle for a reader, which may be slow: the tensor can still be deleted.
  // Errors: as Acquire
  absl::StatusOr<std::shared_ptr<const TensorHandle>> OpenForReading(
      std::string_view name, const StopSignal* stop = nullptr) {
    return OpenTensor(name, false, stop);
  }
  // NotFound; FailedPrecondition (TENSOR_IN_USE; metadata reference_count)
  // while a handle of Acquire is held.
  absl::Status DeleteTensor(std::string_view name);
  // A job has ended: deletes its input if that is a tensor of UploadLife::kJob, so that only the
  // result stays. While it is held still, CollectGarbage does later.
  void ReleaseTransient(std::string_view name);
  // Deletes what a kill has left: inputs of ended jobs, and results of jobs that `has_job` does not
  // know. Called once the jobs of an earlier run hold their inputs again, and before there are new
  // ones.
  using HasJob = std::function<bool(std::string_view job, std::string_view tenant)>;
  void ReleaseLeft(const HasJob& has_job);
  struct Page {
    std::vector<TensorInfo> tensors;  // newest first
    std::string next_page_token;
  };
  // A walk over the pages meets every tensor once that is there all the time. A page may be short,
  // or empty, before the last.
  // Errors: InvalidArgument (PAGE_TOKEN_INVALID; PAGE_SIZE_INVALID below 1)
  absl::StatusOr<Page> ListTensors(int page_size, std::string_view page_token,
                                   const TensorFilter& filter = {});
  struct UploadPage {
    std::vector<UploadInfo> uploads;  // newest first, committed as by GetUpload
    std::string next_page_token;
  };
  // The uploads that have not ended; an empty tenant: those of all. A page may be short. Errors:
  // as ListTensors
  absl::StatusOr<UploadPage> ListUploads(int page_size, std::string_view page_token,
                                         std::string_view tenant = {});

  // Drops idle uploads and expired tensors that nobody holds.
  void CollectGarbage();
  TensorStoreUsage usage() const;

 private:
  // All that a creating request says besides its id.
  struct RequestBody {
    UploadSpec spec;
    Owner owner;
    std::string fingerprint;  // of the whole request; empty: of an earlier version, or not given
  };
  // What a request has made. It lives as long as the upload and the tensor that it becomes, so
  // that its size is bounded by theirs.
  struct Entry {
    RequestBody body;
    std::string id;  // of the upload and of the tensor
  };
  struct Request {
    std::string_view id;
    RequestBody body;
    UploadLife life = UploadLife::kResumable;
    int64_t tensor_bytes = 0;
  };
  using StoredTensors = std::vector<std::shared_ptr<StoredTensor>>;

  TensorStore(TensorStoreOptions options, std::shared_ptr<Spool> spool);

  // Called by an upload with its lock held.
  friend class Upload;
  // It exists: its files do.
  absl::Status Record(const Upload& upload, const UploadInfo& info);
  absl::Status RecordProgress(const Upload& upload, const UploadProgress& progress);
  // Takes the tensor out of `content` once it is recorded.
  absl::StatusOr<TensorInfo> Publish(const Upload& upload, UploadContent& content,
                                     const FinishedContent& finished);
  // The caller removes the upload's files next.
  void Forget(const Upload& upload);
  absl::Time Now() const { return options_.now(); }
  absl::Time SteadyNow() const { return options_.steady_now(); }

  // recovery.cc
  absl::Status Recover();
  void RecoverTensor(const TensorRecord& record, std::vector<std::string>* lost);
  void RecoverUpload(const TensorRecord& record, std::vector<std::string>* lost);
  void Lose(const TensorRecord& record, const absl::Status& cause, std::vector<std::string>* lost);
  void RemoveFiles(const TensorRecord& record);
  struct Leftovers {
    std::vector<std::string> orphans;         // files that no record names
    std::unordered_set<std::string> deleted;  // but for their records
  };
  absl::StatusOr<Leftovers> FindLeftovers(const TensorCatalog::Contents& contents);
  void CheckInBackground();
  // Reads the bytes of a tensor of an earlier run where nobody has yet.
  absl::Status Check(StoredTensor& tensor, const StopSignal* stop);
  void Report(std::string_view kind, std::string name, absl::Status cause);

  // create_upload.cc
  using Existing = std::variant<std::shared_ptr<Upload>, TensorInfo>;
  // The upload or tensor that an earlier request with this id has made, if there was one.
  absl::StatusOr<std::optional<Existing>> FindEarlier(const Request& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Existing> FindOrAdd(const Request& request);
  std::unique_ptr<UploadContent> MakeContent(const UploadSpec& spec, ContentRoom room) const;

  // room.cc
  absl::StatusOr<ContentRoom> ReserveUpload(const Request& request, const std::string& id,
                                            bool recorded, int64_t disk_beside);
  absl::Status CheckBytes(std::string_view what, int64_t host, int64_t disk) const;
  // After CheckBytes.
  absl::StatusOr<Budget::Reservation> ReserveHost(std::string_view what, int64_t bytes);
  absl::StatusOr<Budget::Reservation> ReserveDisk(std::string_view what, int64_t bytes,
                                                  int64_t beside);
  // The disk budget that others take. Waits for a database, so never under the lock.
  int64_t DiskUsedBeside() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The room of one tensor, out of `room`; null: ReserveRoom.
  absl::StatusOr<TensorRoom> TakeRoom(TensorRoom* room, int64_t bytes, const Owner& owner);

  absl::StatusOr<std::shared_ptr<Upload>> FindUpload(std::string_view name);
  // Counts as a use; `held`: as a reference to the tensor too, for as long as the pointer lives.
  absl::StatusOr<std::shared_ptr<StoredTensor>> FindTensor(std::string_view name, bool held);
  absl::StatusOr<std::shared_ptr<const TensorHandle>> OpenTensor(std::string_view name, bool held,
                                                                 const StopSignal* stop);

  // finished_upload.cc: what comes for an upload that is a tensor by now.
  absl::StatusOr<std::shared_ptr<StoredTensor>> FindFinished(std::string_view upload);
  absl::StatusOr<TensorInfo> FinishedBefore(std::string_view upload,
                                            std::optional<uint32_t> total_crc32c);
  absl::StatusOr<int64_t> AppendAgain(std::string_view upload, UploadKind kind, int64_t offset,
                                      std::span<const std::byte> data, uint32_t crc32c);

  void InsertTensor(std::shared_ptr<StoredTensor> tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Disposes of tensors that are in no table any more.
  void Dispose(const StoredTensors& tensors);
  void DeleteRecords(std::vector<std::string> ids);
  // Deletes tensors that are marked as deleted: their records could not be deleted before.
  void DeleteMarked(std::vector<std::string> ids);
  void SaveUseTimes();

  const TensorStoreOptions options_;
  const std::shared_ptr<Spool> spool_;
  const std::unique_ptr<TensorCatalog> own_catalog_;  // null: the options have one
  TensorCatalog& catalog_;
  const std::shared_ptr<Budget> budget_;
  const std::shared_ptr<Budget> disk_budget_;
  const std::shared_ptr<Accumulators> accumulators_;
  TenantAccounts accounts_;
  std::string token_salt_;   // set by Recover
  std::string upload_salt_;  // set by Recover; numbers of uploads are those of this run
  std::atomic<int64_t> corrupt_{0};
  std::atomic<int64_t> unchecked_{0};

  mutable Mutex mutex_;
  AgeTable<Upload> uploads_ ABSL_GUARDED_BY(mutex_);
  uint64_t newest_upload_ ABSL_GUARDED_BY(mutex_) = 0;  // its number
  AgeTable<StoredTensor> tensors_ ABSL_GUARDED_BY(mutex_);
  // Ids of the tensors that were put for a job, until DeleteResultsOf; some may be gone.
  std::unordered_map<std::string, std::vector<std::string>> results_ ABSL_GUARDED_BY(mutex_);
  // By tenant and request id; none where the id is empty.
  std::map<std::pair<std::string, std::string>, Entry> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> undeleted_ ABSL_GUARDED_BY(mutex_);  // records; tried again
  absl::Time use_times_saved_ ABSL_GUARDED_BY(mutex_);

  StopSignal stopping_;
  std::thread checker_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_STORE_H_
