// The start of a store on the files and records of an earlier run.
#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "server/identity/random_hex.h"
#include "server/tensors/store/spool_match.h"
#include "server/tensors/tensor_spec.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// The spec that an upload was made with. An accumulation's record has the spec of its result too.
UploadSpec SpecOf(const TensorRecord& record) {
  if (record.gram.has_value()) return *record.gram;
  return record.spec;
}

// A damaged record may name any file.
absl::Status CheckIds(const TensorRecord& record) {
  const std::string& sums = record.progress.sums;
  if (IsId(record.id) && (sums.empty() || IsId(sums))) return absl::OkStatus();
  return absl::InternalError("the record of a tensor must name files by ids");
}

}  // namespace

void TensorStore::Report(std::string_view kind, std::string name, absl::Status cause) {
  if (kind == StoreIncident::kCorruptTensor) corrupt_.fetch_add(1);
  if (options_.on_incident) options_.on_incident({kind, std::move(name), {}, std::move(cause)});
}

// The record goes later, in one write with the others.
void TensorStore::Lose(const TensorRecord& record, const absl::Status& cause,
                       std::vector<std::string>* lost) {
  Report(record.complete ? StoreIncident::kMissingFile : StoreIncident::kDamagedUpload,
         (record.complete ? "tensors/" : "uploads/") + record.id, cause);
  RemoveFiles(record);
  lost->push_back(record.id);
}

void TensorStore::RemoveFiles(const TensorRecord& record) {
  spool_->Remove(record.id).IgnoreError();
  if (!record.progress.sums.empty()) spool_->Remove(record.progress.sums).IgnoreError();
}

absl::Status TensorStore::Recover() {
  SPARSEFW_ASSIGN_OR_RETURN(TensorCatalog::Contents contents, catalog_.Load());
  token_salt_ = std::move(contents.salt);
  SPARSEFW_ASSIGN_OR_RETURN(upload_salt_, RandomHex(kIdBytes));
  SPARSEFW_ASSIGN_OR_RETURN(const Leftovers left, FindLeftovers(contents));
  std::vector<std::string> lost;
  for (const TensorRecord& record : contents.records) {
    if (left.deleted.contains(record.id)) {
      RemoveFiles(record);
    } else if (const absl::Status ids = CheckIds(record); !ids.ok()) {
      Lose(record, ids, &lost);
    } else if (record.complete) {
      RecoverTensor(record, &lost);
    } else {
      RecoverUpload(record, &lost);
    }
  }
  DeleteRecords(std::move(lost));
  DeleteMarked({left.deleted.begin(), left.deleted.end()});
  for (const std::string& id : left.orphans) {
    SPARSEFW_RETURN_IF_ERROR(spool_->Remove(id));
    if (catalog_.durable()) Report(StoreIncident::kOrphanFile, id, absl::OkStatus());
  }
  if (unchecked_.load() > 0) checker_ = std::thread([this] { CheckInBackground(); });
  return absl::OkStatus();
}

void TensorStore::RecoverTensor(const TensorRecord& record, std::vector<std::string>* lost) {
  const int64_t size = ByteSize(record.spec);
  absl::StatusOr<std::unique_ptr<SpoolFile>> file = spool_->Adopt(record.id, size);
  if (absl::IsNotFound(file.status())) return Lose(record, file.status(), lost);
  CompleteTensor content;
  content.spec = record.spec;
  content.crc32c = record.progress.crc32c;
  content.room = KeepRoom({size, 1}, record.owner);
  content.unchecked = file.ok();
  if (file.ok()) {
    content.file = *std::move(file);
    content.file->Keep();
  }
  // Nobody has used it later than now, whatever the clock was set to.
  const absl::Duration unused = std::max(Now() - record.use_time, absl::ZeroDuration());
  // Earlier builds gave results an expiry of their own, which could come before that of their job.
  auto tensor = std::make_shared<StoredTensor>(
      record, std::move(content), record.number, record.create_time, SteadyNow() - unused,
      record.from_upload ? options_.tensor_ttl : absl::InfiniteDuration(),
      record.job.empty() ? record.expire_time : absl::InfiniteFuture());
  const std::string name = "tensors/" + record.id;
  if (file.ok()) {
    unchecked_.fetch_add(1);
  } else {
    tensor->MarkCorrupt(file.status());
    Report(StoreIncident::kCorruptTensor, name, file.status());
  }
  MutexLock lock(mutex_);
  if (!record.request_id.empty()) {
    requests_.emplace(std::pair(record.owner.tenant, record.request_id),
                      Entry{{SpecOf(record), record.owner, record.fingerprint}, record.id});
  }
  InsertTensor(std::move(tensor));
}

void TensorStore::RecoverUpload(const TensorRecord& record, std::vector<std::string>* lost) {
  const UploadSpec spec = SpecOf(record);
  const UploadRoom bytes = RoomOf(spec, true);
  ContentRoom room{record.id,
                   spool_,
                   budget_->Adopt(bytes.host),
                   disk_budget_->Adopt(bytes.disk),
                   accounts_.AdoptPlaces(record.owner.tenant, 1),
                   true,
                   options_.commit_interval_bytes};
  room.host.Join(accounts_.Adopt(record.owner.tenant, bytes.host));
  const auto number = [this] {
    MutexLock lock(mutex_);
    return ++newest_upload_;
  };
  auto upload = std::make_shared<Upload>(record, MakeContent(spec, std::move(room)), number(),
                                         record.create_time, options_.upload_idle_ttl, true, this);
  if (absl::Status recovered = upload->Recover(record.progress); !recovered.ok()) {
    return Lose(record, recovered, lost);
  }
  accounts_.AdoptUpload(record.owner.tenant);
  MutexLock lock(mutex_);
  if (!record.request_id.empty()) {
    requests_.emplace(std::pair(record.owner.tenant, record.request_id),
                      Entry{{spec, record.owner, record.fingerprint}, record.id});
  }
  uploads_.Insert(std::move(upload));
}

// Nothing is removed before it is clear that folder and catalog belong together. Parts without
// a record and what is marked as deleted tell of a kill, however many there are.
absl::StatusOr<TensorStore::Leftovers> TensorStore::FindLeftovers(
    const TensorCatalog::Contents& contents) {
  std::unordered_set<std::string> named;
  for (const TensorRecord& record : contents.records) {
    named.insert(record.id);
    if (!record.progress.sums.empty()) named.insert(record.progress.sums);
  }
  SpoolMatch match{.spool = options_.spool_dir, .owner = {}, .store = contents.store};
  SPARSEFW_ASSIGN_OR_RETURN(match.owner, spool_->Owner());
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<SpoolEntry> files, spool_->List());
  std::unordered_set<std::string> there;
  Leftovers left;
  for (const auto& [id, bytes, kind] : files) {
    if (kind == SpoolEntry::Kind::kDeleted) {
      left.deleted.insert(id);
      continue;
    }
    there.insert(id);
    if (named.contains(id)) continue;
    left.orphans.push_back(id);
    if (kind == SpoolEntry::Kind::kPart) continue;
    ++match.orphans;
    match.orphan_bytes += bytes;
  }
  for (const TensorRecord& record : contents.records) {
    if (left.deleted.contains(record.id)) continue;
    const std::string& sums = record.progress.sums;
    const bool found = there.contains(record.complete || sums.empty() ? record.id : sums);
    match.kept += found ? 1 : 0;
    // What an upload has committed was on the disk before its record said so.
    const bool written = record.complete || record.progress.committed > 0;
    match.missing += !found && written ? 1 : 0;
  }
  if (!options_.discard_unmatched) SPARSEFW_RETURN_IF_ERROR(CheckMatch(match));
  if (match.owner == contents.store) return left;
  // On a full disk a later start writes it.
  const absl::Status owned = spool_->SetOwner(contents.store);
  if (!owned.ok() && !absl::IsResourceExhausted(owned)) return owned;
  return left;
}

absl::Status TensorStore::Check(StoredTensor& tensor, const StopSignal* stop) {
  if (!tensor.unchecked()) return absl::OkStatus();
  const absl::Status checked = tensor.CheckBytes(stop);
  if (tensor.unchecked() || !tensor.TakeReport()) return checked;
  unchecked_.fetch_sub(1);
  if (!checked.ok()) {
    Report(StoreIncident::kCorruptTensor, "tensors/" + tensor.origin().id, checked);
  }
  return checked;
}

void TensorStore::CheckInBackground() {
  std::vector<std::weak_ptr<StoredTensor>> all;  // room goes with what is deleted meanwhile
  {
    MutexLock lock(mutex_);
    for (const auto& [number, tensor] : tensors_) {
      if (tensor->unchecked()) all.push_back(tensor);
    }
  }
  for (const std::weak_ptr<StoredTensor>& one : all) {
    if (stopping_.requested()) return;
    const std::shared_ptr<StoredTensor> tensor = one.lock();
    if (tensor == nullptr) continue;
    const absl::Status checked = Check(*tensor, &stopping_);
    if (!tensor->unchecked() || absl::IsCancelled(checked)) continue;
    {
      MutexLock lock(mutex_);
      if (tensors_.Find(tensor->origin().id) == nullptr) continue;  // deleted meanwhile
    }
    Report(StoreIncident::kCheckFailed, "tensors/" + tensor->origin().id, checked);
  }
}

}  // namespace sparsefw::server
