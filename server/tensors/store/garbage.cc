// Deletion, expiry and times of use of tensors and uploads.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/failpoint/failpoint.h"
#include "server/tensors/store/spool_match.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/steady_time.h"

namespace sparsefw::server {

// A record that cannot be deleted, on a full disk above all, must not keep the file. The
// mark tells the next start that the file is missing for this reason, however many are.
void TensorStore::DeleteRecords(std::vector<std::string> ids) {
  if (ids.empty() || catalog_.Delete(ids).ok()) return;
  for (const std::string& id : ids) spool_->MarkDeleted(id);
  MutexLock lock(mutex_);
  std::ranges::move(ids, std::back_inserter(undeleted_));
}

void TensorStore::DeleteMarked(std::vector<std::string> ids) {
  if (ids.empty()) return;
  if (catalog_.Delete(ids).ok()) {
    for (const std::string& id : ids) spool_->UnmarkDeleted(id);
    return;
  }
  MutexLock lock(mutex_);
  std::ranges::move(ids, std::back_inserter(undeleted_));
}

void TensorStore::Dispose(const StoredTensors& tensors) {
  for (size_t begin = 0; begin < tensors.size(); begin += kDeletedAtOnce) {
    const size_t end = std::min(begin + kDeletedAtOnce, tensors.size());
    std::vector<std::string> ids;
    for (size_t i = begin; i < end; ++i) ids.push_back(tensors[i]->origin().id);
    // A kill leaves files without records, and no start may take them for somebody's.
    for (const std::string& id : ids) spool_->Release(id);
    if (catalog_.durable()) spool_->SyncNames();
    for (size_t i = begin; i < end; ++i) {
      if (tensors[i]->unchecked() && tensors[i]->TakeReport()) unchecked_.fetch_sub(1);
    }
    Failpoint("tensor.delete");
    DeleteRecords(ids);
    Failpoint("tensor.deleted");
    for (const std::string& id : ids) spool_->Remove(id).IgnoreError();
  }
}

void TensorStore::ReleaseTransient(std::string_view name) {
  {
    MutexLock lock(mutex_);
    const std::shared_ptr<StoredTensor> found = tensors_.Find(IdOf(name, kTensorPrefix));
    if (found == nullptr || !found->origin().transient) return;
    found->Abandon();
  }
  DeleteTensor(name).IgnoreError();
}

void TensorStore::ReleaseLeft(const HasJob& has_job) {
  StoredTensors all;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, tensor] : tensors_) {
      if (tensor->origin().transient || !tensor->origin().job.empty()) all.push_back(tensor);
    }
  }
  std::map<std::string, std::string> tenants;  // by the name of a job
  for (const auto& tensor : all) {
    const Origin& origin = tensor->origin();
    if (origin.transient) {
      DeleteTensor("tensors/" + origin.id).IgnoreError();  // one that is held goes with its job
    } else {
      tenants.emplace(origin.job, origin.owner.tenant);
    }
  }
  for (const auto& [job, tenant] : tenants) {
    if (!has_job(job, tenant)) DeleteResultsOf(job);
  }
}

void TensorStore::CollectGarbage() {
  const absl::Time now = SteadyNow();
  const absl::Time expiry = ExpiryNow(Now(), now);
  StoredTensors expired;
  std::vector<std::shared_ptr<Upload>> uploads;
  std::vector<std::string> undeleted;
  {
    MutexLock lock(mutex_);
    expired = tensors_.TakeIf([now, expiry](StoredTensor& tensor) {
      if (tensor.references() == 0) return tensor.Expired(now, expiry);
      tensor.Touch(now);  // being held is being used
      return false;
    });
    for (const auto& tensor : expired) {
      requests_.erase({tensor->origin().owner.tenant, tensor->origin().request_id});
    }
    for (const auto& [number, upload] : uploads_) {
      if (upload->expire_time() <= now) uploads.push_back(upload);
    }
    undeleted.swap(undeleted_);
  }
  Dispose(expired);
  DeleteMarked(std::move(undeleted));
  for (const auto& upload : uploads) upload->DeleteIfIdle(now);
  SaveUseTimes();
  accounts_.DropEmpty();
}

// Only where a use makes a difference.
void TensorStore::SaveUseTimes() {
  if (options_.tensor_ttl == absl::InfiniteDuration()) return;
  std::vector<TensorCatalog::Use> uses;
  const absl::Time now = SteadyNow();
  const absl::Duration to_wall = Now() - now;
  absl::Time saved;
  {
    MutexLock lock(mutex_);
    saved = std::exchange(use_times_saved_, now);
    for (const auto& [number, tensor] : tensors_) {
      const absl::Time used = tensor->use_time();
      if (used >= saved) uses.push_back({tensor->origin().id, used + to_wall});
    }
  }
  if (uses.empty() || catalog_.SetUseTimes(uses).ok()) return;
  MutexLock lock(mutex_);
  use_times_saved_ = std::min(use_times_saved_, saved);
}

}  // namespace sparsefw::server
