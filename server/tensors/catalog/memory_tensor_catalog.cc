#include <algorithm>
#include <map>
#include <utility>

#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/random_id.h"
#include "sparsefw/mutex.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

class MemoryTensorCatalog final : public TensorCatalog {
 public:
  bool durable() const override { return false; }

  absl::StatusOr<Contents> Load() override {
    MutexLock lock(mutex_);
    if (salt_.empty()) {
      SPARSEFW_ASSIGN_OR_RETURN(salt_, RandomId());
    }
    Contents contents;
    contents.salt = salt_;
    contents.store = kMemoryStore;
    for (const auto& [id, record] : records_) contents.records.push_back(record);
    std::ranges::sort(contents.records, {}, &TensorRecord::number);
    return contents;
  }

  absl::StatusOr<int64_t> Insert(const TensorRecord& record) override {
    MutexLock lock(mutex_);
    return Add(record);
  }

  absl::Status Commit(std::string_view id, const UploadProgress& progress) override {
    MutexLock lock(mutex_);
    const auto found = records_.find(std::string(id));
    if (found != records_.end() && !found->second.complete) found->second.progress = progress;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Publish(const TensorRecord& record) override {
    MutexLock lock(mutex_);
    Erase(record.id);
    return Add(record);
  }

  absl::Status Delete(std::span<const std::string> ids) override {
    MutexLock lock(mutex_);
    for (const std::string& id : ids) Erase(id);
    return absl::OkStatus();
  }

  absl::Status SetUseTimes(std::span<const Use> uses) override {
    MutexLock lock(mutex_);
    for (const Use& use : uses) {
      const auto found = records_.find(use.id);
      if (found != records_.end()) found->second.use_time = use.time;
    }
    return absl::OkStatus();
  }

 private:
  int64_t Add(TensorRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!record.request_id.empty()) {
      std::string& id = by_request_[{record.owner.tenant, record.request_id}];
      records_.erase(id);
      id = record.id;
    }
    record.number = ++last_number_;
    const std::string id = record.id;
    records_.insert_or_assign(id, std::move(record));
    return last_number_;
  }

  void Erase(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = records_.find(id);
    if (found == records_.end()) return;
    by_request_.erase({found->second.owner.tenant, found->second.request_id});
    records_.erase(found);
  }

  Mutex mutex_;
  std::string salt_ ABSL_GUARDED_BY(mutex_);
  int64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, TensorRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, std::string> by_request_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TensorCatalog> NewMemoryTensorCatalog() {
  return std::make_unique<MemoryTensorCatalog>();
}

}  // namespace sparsefw::server
