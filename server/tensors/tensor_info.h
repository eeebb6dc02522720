// What callers of the tensor store give it and get from it.
#ifndef SPARSEFW_SERVER_TENSORS_TENSOR_INFO_H_
#define SPARSEFW_SERVER_TENSORS_TENSOR_INFO_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/owner.h"
#include "server/identity/tenants.h"
#include "server/tensors/store_incident.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/backend.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::server {

class MappedBytes;
class StoredTensor;
class TensorCatalog;

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
// the tensor. One of TensorStore::Hold has no bytes. Immutable, thread-safe.
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
  const std::shared_ptr<const MappedBytes> mapped_;  // null: no bytes
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

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_INFO_H_
