// A complete tensor and who holds it.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_
#define SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/tensor_info.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

inline constexpr std::string_view kUploadPrefix = "uploads/";
inline constexpr std::string_view kTensorPrefix = "tensors/";
// Empty, which no id is, for the name of anything else.
inline std::string_view IdOf(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view();
}

// A tensor made by an upload or the server: checked, not yet visible.
struct CompleteTensor {
  TensorSpec spec;
  uint32_t crc32c = 0;
  std::unique_ptr<SpoolFile> file;
  TensorRoom room;
  bool unchecked = false;  // its file is older than this process: to be read before it is used
};

// Immutable but for the count of references, the time of its last use and the
// results of checks. Thread-safe. Its room goes with the last shared_ptr.
class StoredTensor {
 public:
  // `idle_ttl`: it expires so long after its last use, in steady time; infinite: at
  // `expire_time`, in that of ExpiryNow.
  StoredTensor(Origin origin, CompleteTensor content, int64_t number, absl::Time create_time,
               absl::Time use_time, absl::Duration idle_ttl, absl::Time expire_time);

  const Origin& origin() const { return origin_; }
  const TensorSpec& spec() const { return info_.spec; }
  uint64_t number() const { return number_; }
  absl::Time use_time() const;  // steady
  absl::Time expire_time() const;
  bool Expired(absl::Time steady, absl::Time expiry) const {
    return abandoned_.load(std::memory_order_relaxed) ||
           expire_time() <= (idle_ttl_ == absl::InfiniteDuration() ? expiry : steady);
  }
  // The job that it belongs to is gone: it expires as soon as nobody holds it.
  void Abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  TensorInfo Info() const;
  void Touch(absl::Time steady);

  int references() const { return references_.load(std::memory_order_acquire); }
  // The store adds references under its lock, so that none appears between
  // the check of a deletion and the deletion; they go without any lock.
  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void DropReference() { references_.fetch_sub(1, std::memory_order_release); }

  // See TensorHandle.
  absl::Status CheckValues(absl::FunctionRef<absl::Status()> check) const;

  // Reads the file of an earlier run, once: later calls get the same answer, calls
  // meanwhile wait for it. `stop` ends it with no answer (Cancelled); null: never.
  // Errors: DataLoss (TENSOR_CORRUPT) it is not what was written; as SpoolFile::Read
  absl::Status CheckBytes(const StopSignal* stop) const;
  // Known without reading.
  void MarkCorrupt(absl::Status why);
  bool unchecked() const { return unchecked_.load(std::memory_order_acquire); }

  // A handle that keeps `tensor` until its bytes are unmapped. Errors: as CheckBytes
  static absl::StatusOr<std::shared_ptr<const TensorHandle>> Open(
      std::shared_ptr<const StoredTensor> tensor, const StopSignal* stop);
  // True for the first caller.
  bool TakeReport() { return !reported_.exchange(true); }

 private:
  // One mapping for all handles: pages count as the process's memory once for each.
  absl::StatusOr<std::shared_ptr<const MappedBytes>> Map() const;

  const Origin origin_;
  const TensorInfo info_;         // but for reference_count and expire_time
  const CompleteTensor content_;  // without a file: it is corrupt
  const uint64_t number_;
  const absl::Duration idle_ttl_;
  std::atomic<int> references_{0};
  std::atomic<int64_t> use_time_ns_;
  mutable std::atomic<bool> unchecked_;
  std::atomic<bool> reported_{false};
  std::atomic<bool> abandoned_{false};
  mutable Mutex map_mutex_;
  mutable std::weak_ptr<const MappedBytes> mapped_ ABSL_GUARDED_BY(map_mutex_);
  mutable Mutex bytes_mutex_;
  mutable CondVar bytes_checked_;
  mutable bool checking_ ABSL_GUARDED_BY(bytes_mutex_) = false;  // a caller reads the file
  mutable absl::Status bytes_ ABSL_GUARDED_BY(bytes_mutex_);
  mutable Mutex check_mutex_;
  mutable std::optional<absl::Status> checked_ ABSL_GUARDED_BY(check_mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_
