// The tensor store over any spool.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_
#define SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/age_table.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/store/tenant_accounts.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Locks: an upload's, then this store's; the store's is held for table
// look-ups only, never while the disk or the catalog is touched or an upload is
// called.
//
// Tensors come as files before records before tables, and go the other way round.
class SpooledTensorStore final : public TensorStore, private Upload::Keeper {
 public:
  using Created = std::variant<UploadInfo, TensorInfo>;

  // Errors: InvalidArgument (OPTION_INVALID); those of the spool and the catalog
  static absl::StatusOr<std::unique_ptr<TensorStore>> Create(TensorStoreOptions options,
                                                             std::shared_ptr<Spool> spool);
  ~SpooledTensorStore() override;

  absl::StatusOr<Created> CreateUpload(const UploadSpec& spec, std::string_view request_id,
                                       const Owner& owner, UploadLife life,
                                       std::string_view fingerprint) override;
  absl::StatusOr<int64_t> Append(std::string_view upload, UploadKind kind, int64_t offset,
                                 std::span<const std::byte> data, uint32_t crc32c) override;
  absl::StatusOr<UploadInfo> Commit(std::string_view upload) override;
  absl::StatusOr<TensorInfo> Finish(std::string_view upload,
                                    std::optional<uint32_t> total_crc32c) override;
  absl::StatusOr<UploadInfo> GetUpload(std::string_view name) override;
  absl::Status DeleteUpload(std::string_view name) override;
  absl::Status CheckRoom(const RoomNeed& need) const override;
  absl::StatusOr<TensorRoom> ReserveRoom(const RoomNeed& need, const Owner& owner) override;
  TensorRoom KeepRoom(const RoomNeed& need, const Owner& owner) override;
  absl::StatusOr<TensorInfo> Put(const TensorSpec& spec, std::span<const std::byte> bytes,
                                 const Owner& owner, absl::Time expire_time, TensorRoom* room,
                                 std::string_view job) override;
  int64_t DeleteResultsOf(std::string_view job) override;
  absl::StatusOr<TensorInfo> GetTensor(std::string_view name) override;
  absl::StatusOr<std::shared_ptr<const TensorHandle>> Acquire(std::string_view name) override {
    return OpenTensor(name, true);
  }
  absl::StatusOr<std::shared_ptr<const TensorHandle>> OpenForReading(
      std::string_view name) override {
    return OpenTensor(name, false);
  }
  absl::Status DeleteTensor(std::string_view name) override;
  void ReleaseTransient(std::string_view name) override;
  void ReleaseTransientLeft() override;
  absl::StatusOr<Page> ListTensors(int page_size, std::string_view page_token,
                                   const TensorFilter& filter) override;
  absl::StatusOr<UploadPage> ListUploads(int page_size, std::string_view page_token,
                                         std::string_view tenant) override;
  void CollectGarbage() override;
  TensorStoreUsage usage() const override;

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

  SpooledTensorStore(TensorStoreOptions options, std::shared_ptr<Spool> spool);

  // Upload::Keeper
  absl::Status Record(const Upload& upload, const UploadInfo& info) override;
  absl::Status RecordProgress(const Upload& upload, const UploadProgress& progress) override {
    return catalog_.Commit(upload.origin().id, progress);
  }
  absl::StatusOr<TensorInfo> Publish(const Upload& upload, UploadContent& content,
                                     const FinishedContent& finished) override;
  void Forget(const Upload& upload) override;
  absl::Time Now() const { return options_.now(); }
  absl::Time SteadyNow() const override { return options_.steady_now(); }

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
  absl::Status Check(StoredTensor& tensor, const std::atomic<bool>* stop);
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
  // A handle; `held`: one that counts as a reference to the tensor.
  absl::StatusOr<std::shared_ptr<const TensorHandle>> OpenTensor(std::string_view name, bool held);

  // finished_upload.cc: what comes for an upload that is a tensor by now.
  absl::StatusOr<std::shared_ptr<StoredTensor>> FindFinished(std::string_view upload);
  absl::StatusOr<TensorInfo> FinishedBefore(std::string_view upload,
                                            std::optional<uint32_t> total_crc32c);
  absl::StatusOr<int64_t> AppendAgain(std::string_view upload, UploadKind kind, int64_t offset,
                                      std::span<const std::byte> data, uint32_t crc32c);

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
  // By tenant and request id; none where the id is empty.
  std::map<std::pair<std::string, std::string>, Entry> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> undeleted_ ABSL_GUARDED_BY(mutex_);  // records; tried again
  absl::Time use_times_saved_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> stopping_{false};
  std::thread checker_;
};

inline constexpr std::string_view kUploadPrefix = "uploads/";
inline constexpr std::string_view kTensorPrefix = "tensors/";
// Empty, which no id is, for the name of anything else.
inline std::string_view IdOf(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
}

// The reservations of an upload, in bytes. `resumable`: its progress is kept on the disk.
struct UploadRoom {
  int64_t host = 0;
  int64_t disk = 0;
};
UploadRoom RoomOf(const UploadSpec& spec, bool resumable);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_SPOOLED_TENSOR_STORE_H_
