// A complete tensor and who holds it.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_
#define SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/tensors/spool/spool.h"
#include "server/tensors/store/byte_budget.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A tensor made by an upload or the server: checked, not yet visible.
struct CompleteTensor {
  TensorSpec spec;
  uint32_t crc32c = 0;
  std::unique_ptr<SpoolFile> file;
  ByteBudget::Reservation reservation;
};

// Who asked for it and how it is found. The upload and the tensor that it
// becomes share `id`.
struct Origin {
  std::string id;
  std::string owner;
  std::string request_id;    // may be empty
  bool from_upload = false;  // false: made by the server
};

// Immutable but for the count of references and the result of the check of its
// values. Thread-safe. Its file and its
// bytes of the budget go when the last shared_ptr does.
class StoredTensor {
 public:
  StoredTensor(Origin origin, CompleteTensor content, absl::Time create_time,
               absl::Time expire_time);

  const Origin& origin() const { return origin_; }
  absl::Time expire_time() const { return info_.expire_time; }
  TensorInfo Info() const;

  int references() const { return references_.load(std::memory_order_acquire); }
  // The store adds references under its lock, so that none appears between
  // the check of a deletion and the deletion; they go without any lock.
  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void DropReference() { references_.fetch_sub(1, std::memory_order_release); }

  // See TensorHandle.
  absl::Status CheckValues(absl::FunctionRef<absl::Status()> check) const;

  // Takes over a reference that was added before, also when it fails.
  static absl::StatusOr<std::shared_ptr<const TensorHandle>> Hold(
      std::shared_ptr<StoredTensor> tensor);

 private:
  const Origin origin_;
  const TensorInfo info_;  // but for reference_count
  const CompleteTensor content_;
  std::atomic<int> references_{0};
  mutable Mutex check_mutex_;
  mutable std::optional<absl::Status> checked_ ABSL_GUARDED_BY(check_mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_STORED_TENSOR_H_
