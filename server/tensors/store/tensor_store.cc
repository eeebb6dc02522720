#include "server/tensors/tensor_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "server/failpoint/failpoint.h"
#include "server/identity/random_hex.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/stored_tensor.h"
#include "server/tensors/tensor_spec.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {
namespace {

// The record of what `origin` names.
TensorRecord RecordOf(const Origin& origin, const TensorSpec& spec, absl::Time create_time) {
  TensorRecord record;
  static_cast<Origin&>(record) = origin;
  record.spec = spec;
  record.create_time = record.use_time = create_time;
  return record;
}

}  // namespace

absl::Status TensorNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND",
                "a tensor must exist to be used; got \"%s\"", Printable(name));
}

absl::StatusOr<std::unique_ptr<TensorStore>> TensorStore::Open(TensorStoreOptions options) {
  SPARSEFW_ASSIGN_OR_RETURN(std::shared_ptr<Spool> spool, OpenSpoolFolder(options.spool_dir));
  return Open(std::move(options), std::move(spool));
}

absl::StatusOr<std::unique_ptr<TensorStore>> TensorStore::Open(TensorStoreOptions options,
                                                               std::shared_ptr<Spool> spool) {
  if (options.gram_backend == nullptr) {
    return Invalid("OPTION_INVALID", "gram_backend must be set; got none");
  }
  if (options.budget_bytes < 1 || options.max_tensor_bytes < 1 || options.max_tensors < 1) {
    return Invalid(
        "OPTION_INVALID",
        "budget_bytes, max_tensor_bytes and max_tensors must be at least 1; got %d, %d and %d",
        options.budget_bytes, options.max_tensor_bytes, options.max_tensors);
  }
  if (options.upload_idle_ttl <= absl::ZeroDuration()) {
    return Invalid("OPTION_INVALID", "upload_idle_ttl must be above 0; got %s",
                   absl::FormatDuration(options.upload_idle_ttl));
  }
  if (options.device_sum_bytes < 0) {
    return Invalid("OPTION_INVALID", "device_sum_bytes must be at least 0; got %d",
                   options.device_sum_bytes);
  }
  if (options.disk_budget_bytes < 0 || options.tensor_ttl <= absl::ZeroDuration()) {
    return Invalid("OPTION_INVALID",
                   "disk_budget_bytes must be at least 0 and tensor_ttl above 0; got %d and %s",
                   options.disk_budget_bytes, absl::FormatDuration(options.tensor_ttl));
  }
  if (!options.now) options.now = [] { return absl::Now(); };
  if (!options.steady_now) options.steady_now = sparsefw::SteadyNow;
  std::unique_ptr<TensorStore> store(new TensorStore(std::move(options), std::move(spool)));
  SPARSEFW_RETURN_IF_ERROR(store->Recover());
  return store;
}

TensorStore::TensorStore(TensorStoreOptions options, std::shared_ptr<Spool> spool)
    : options_(std::move(options)),
      spool_(std::move(spool)),
      own_catalog_(options_.catalog == nullptr ? NewMemoryTensorCatalog() : nullptr),
      catalog_(own_catalog_ == nullptr ? *options_.catalog : *own_catalog_),
      budget_(Budget::Create(options_.budget_bytes)),
      disk_budget_(Budget::Create(options_.disk_budget_bytes > 0
                                      ? options_.disk_budget_bytes
                                      : std::numeric_limits<int64_t>::max())),
      accumulators_(std::make_shared<Accumulators>(*options_.gram_backend, options_.gram_threads,
                                                   options_.device_sum_bytes)),
      accounts_(options_.limits_of, options_.max_tensors, options_.many_tenants),
      use_times_saved_(options_.steady_now()) {}

TensorStore::~TensorStore() {
  stopping_.Request();
  if (checker_.joinable()) checker_.join();
  for (const auto& [number, upload] : uploads_) upload->Close();
  if (catalog_.durable()) {
    SaveUseTimes();
    return;
  }
  for (const auto& [number, tensor] : tensors_) {
    spool_->Remove(tensor->origin().id).IgnoreError();
  }
}

absl::StatusOr<std::shared_ptr<Upload>> TensorStore::FindUpload(std::string_view name) {
  MutexLock lock(mutex_);
  std::shared_ptr<Upload> found = uploads_.Find(IdOf(name, kUploadPrefix));
  if (found == nullptr) return UploadNotFound(name);
  return found;
}

absl::StatusOr<int64_t> TensorStore::Append(std::string_view upload, UploadKind kind,
                                            int64_t offset, std::span<const std::byte> data,
                                            uint32_t crc32c) {
  if (auto found = FindUpload(upload); found.ok()) {
    absl::StatusOr<int64_t> appended = (*found)->Append(kind, offset, data, crc32c);
    // Not found: another caller finished it just now.
    if (!absl::IsNotFound(appended.status())) return appended;
  }
  return AppendAgain(upload, kind, offset, data, crc32c);
}

absl::StatusOr<UploadInfo> TensorStore::Commit(std::string_view upload) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(upload));
  return found->Commit();
}

absl::StatusOr<TensorInfo> TensorStore::Finish(std::string_view upload,
                                               std::optional<uint32_t> total_crc32c) {
  if (auto found = FindUpload(upload); found.ok()) {
    absl::StatusOr<TensorInfo> finished = (*found)->Finish(total_crc32c);
    // Not found: another caller finished it just now.
    if (!absl::IsNotFound(finished.status())) return finished;
  }
  return FinishedBefore(upload, total_crc32c);
}

absl::StatusOr<UploadInfo> TensorStore::GetUpload(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(name));
  return found->Info();
}

absl::StatusOr<Owner> TensorStore::OwnerOfUpload(std::string_view name) {
  if (const auto open = FindUpload(name); open.ok()) return (*open)->origin().owner;
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> tensor, FindFinished(name));
  return tensor->origin().owner;
}

absl::Status TensorStore::DeleteUpload(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> found, FindUpload(name));
  return found->Delete();
}

void TensorStore::TouchUpload(std::string_view name) {
  if (const auto found = FindUpload(name); found.ok()) (*found)->Touch();
}

absl::Status TensorStore::Record(const Upload& upload, const UploadInfo& info) {
  return catalog_.Insert(RecordOf(upload.origin(), info.spec, info.create_time)).status();
}

absl::Status TensorStore::RecordProgress(const Upload& upload, const UploadProgress& progress) {
  return catalog_.Commit(upload.origin().id, progress);
}

absl::StatusOr<TensorInfo> TensorStore::Publish(const Upload& upload, UploadContent& content,
                                                const FinishedContent& finished) {
  const absl::Time now = Now();
  TensorRecord record = RecordOf(upload.origin(), finished.spec, now);
  record.complete = true;
  record.progress = {ByteSize(finished.spec), finished.crc32c, ""};
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t number, catalog_.Insert(record));
  Failpoint("tensor.recorded");
  CompleteTensor complete = content.Take(finished);
  complete.file->Keep();
  auto stored =
      std::make_shared<StoredTensor>(upload.origin(), std::move(complete), number, now, SteadyNow(),
                                     options_.tensor_ttl, absl::InfiniteFuture());
  if (stored->unchecked()) unchecked_.fetch_add(1);
  TensorInfo info = stored->Info();
  accounts_.CloseUpload(upload.origin().owner.tenant);
  MutexLock lock(mutex_);
  uploads_.Erase(upload.origin().id);
  tensors_.Insert(std::move(stored));
  return info;
}

void TensorStore::Forget(const Upload& upload) {
  const Origin& origin = upload.origin();
  {
    MutexLock lock(mutex_);
    uploads_.Erase(origin.id);
    requests_.erase({origin.owner.tenant, origin.request_id});
  }
  accounts_.CloseUpload(origin.owner.tenant);
  if (!upload.recorded()) return;
  spool_->Release(origin.id);
  spool_->SyncNames();
  DeleteRecords({origin.id});
}

absl::StatusOr<TensorInfo> TensorStore::Put(const TensorSpec& spec,
                                            std::span<const std::byte> bytes, const Owner& owner,
                                            absl::Time expire_time, TensorRoom* room,
                                            std::string_view job) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  const int64_t size = ByteSize(spec);
  if (static_cast<int64_t>(bytes.size()) != size) {
    return Invalid("SPEC_INVALID", "a tensor of dims [%d, %d] must be %d bytes; got %d", spec.rows,
                   spec.cols, size, bytes.size());
  }
  SPARSEFW_ASSIGN_OR_RETURN(TensorRoom own, TakeRoom(room, size, owner));
  Origin origin;
  origin.owner = owner;
  origin.job = std::string(job);
  SPARSEFW_ASSIGN_OR_RETURN(origin.id, RandomHex(kIdBytes));
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<SpoolFile> made, spool_->Create(origin.id, size));
  NewSpoolFile file(std::move(made));
  SPARSEFW_RETURN_IF_ERROR(file->Write(0, bytes));
  if (catalog_.durable()) SPARSEFW_RETURN_IF_ERROR(file->Sync());
  Failpoint("result.synced");

  TensorRecord record = RecordOf(origin, spec, Now());
  record.complete = true;
  record.progress = {size, Crc32c(bytes), ""};
  record.expire_time = expire_time;
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t number, catalog_.Insert(record));
  Failpoint("result.stored");
  file->Keep();
  auto stored = std::make_shared<StoredTensor>(
      std::move(origin), CompleteTensor{spec, record.progress.crc32c, file.Take(), std::move(own)},
      number, record.create_time, SteadyNow(), absl::InfiniteDuration(), expire_time);
  TensorInfo info = stored->Info();
  MutexLock lock(mutex_);
  InsertTensor(std::move(stored));
  return info;
}

void TensorStore::InsertTensor(std::shared_ptr<StoredTensor> tensor) {
  const Origin& origin = tensor->origin();
  if (!origin.job.empty()) results_[origin.job].push_back(origin.id);
  tensors_.Insert(std::move(tensor));
}

int64_t TensorStore::DeleteResultsOf(std::string_view job) {
  StoredTensors results;
  {
    MutexLock lock(mutex_);
    const auto ids = results_.extract(std::string(job));
    if (ids.empty()) return 0;
    for (const std::string& id : ids.mapped()) {
      std::shared_ptr<StoredTensor> tensor = tensors_.Find(id);
      if (tensor == nullptr) continue;
      tensor->Abandon();
      if (tensor->references() > 0) continue;
      tensors_.Erase(id);
      results.push_back(std::move(tensor));
    }
  }
  if (!results.empty()) Dispose(results);
  return std::ssize(results);
}

absl::StatusOr<TensorInfo> TensorStore::GetTensor(std::string_view name) {
  MutexLock lock(mutex_);
  const std::shared_ptr<StoredTensor> found = tensors_.Find(IdOf(name, kTensorPrefix));
  if (found == nullptr) return TensorNotFound(name);
  return found->Info();
}

absl::StatusOr<std::shared_ptr<StoredTensor>> TensorStore::FindTensor(std::string_view name,
                                                                      bool held) {
  std::shared_ptr<StoredTensor> found;
  {
    MutexLock lock(mutex_);
    found = tensors_.Find(IdOf(name, kTensorPrefix));
    if (found == nullptr) return TensorNotFound(name);
    if (held) found->AddReference();
  }
  if (held) {
    found = {found.get(), [found](StoredTensor* tensor) { tensor->DropReference(); }};
  }
  found->Touch(SteadyNow());
  return found;
}

absl::StatusOr<std::shared_ptr<const TensorHandle>> TensorStore::Hold(std::string_view name) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> found, FindTensor(name, true));
  return std::make_shared<const TensorHandle>(found, nullptr);
}

absl::StatusOr<std::shared_ptr<const TensorHandle>> TensorStore::OpenTensor(
    std::string_view name, bool held, const StopSignal* stop) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::shared_ptr<StoredTensor> found, FindTensor(name, held));
  // Open would read a file again that could not be read.
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<const TensorHandle>> {
    SPARSEFW_RETURN_IF_ERROR(Check(*found, stop));
    return StoredTensor::Open(found, stop);
  };
  auto handle = open();
  if (handle.ok() || absl::IsCancelled(handle.status())) return handle;
  MutexLock lock(mutex_);
  // Deleted meanwhile: no wonder that it could not be opened.
  if (tensors_.Find(found->origin().id) == nullptr) return TensorNotFound(name);
  return handle;
}

absl::Status TensorStore::DeleteTensor(std::string_view name) {
  std::shared_ptr<StoredTensor> removed;
  {
    MutexLock lock(mutex_);
    removed = tensors_.Find(IdOf(name, kTensorPrefix));
    if (removed == nullptr) return TensorNotFound(name);
    if (const int references = removed->references(); references > 0) {
      return WithReason(
          absl::FailedPreconditionError(absl::StrFormat(
              "%s must not be in use to be deleted; %d still hold it", name, references)),
          "TENSOR_IN_USE", {{"reference_count", absl::StrFormat("%d", references)}});
    }
    tensors_.Erase(removed->origin().id);
    requests_.erase({removed->origin().owner.tenant, removed->origin().request_id});
  }
  Dispose({removed});
  return absl::OkStatus();
}

TensorStoreUsage TensorStore::usage() const {
  TensorStoreUsage usage;
  usage.budget_bytes = budget_->limit();
  usage.used_bytes = budget_->used();
  usage.device_sum_budget_bytes = accumulators_->device().limit();
  usage.device_sum_used_bytes = accumulators_->device().used();
  usage.sums_without_room = accumulators_->without_room();
  usage.disk_budget_bytes = options_.disk_budget_bytes;
  usage.disk_used_bytes = disk_budget_->used();
  usage.corrupt = corrupt_.load();
  MutexLock lock(mutex_);
  usage.tensors = static_cast<int64_t>(tensors_.size());
  usage.uploads = static_cast<int64_t>(uploads_.size());
  usage.max_tensors = options_.max_tensors;
  usage.reserved = std::max<int64_t>(0, accounts_.places_used() - usage.tensors - usage.uploads);
  usage.unchecked = unchecked_.load();
  return usage;
}

}  // namespace sparsefw::server
