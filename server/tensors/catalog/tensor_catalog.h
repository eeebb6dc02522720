// Records of a server's tensors, one beside the file of each.
#ifndef SPARSEFW_SERVER_TENSORS_CATALOG_TENSOR_CATALOG_H_
#define SPARSEFW_SERVER_TENSORS_CATALOG_TENSOR_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/owner.h"
#include "server/tensors/tensor_spec.h"

namespace sparsefw::server {

// How far an upload has come. The bytes that it names are on the disk.
struct UploadProgress {
  int64_t committed = 0;  // bytes; of an accumulation tokens
  uint32_t crc32c = 0;    // of these bytes; of an accumulation, of its state
  std::string sums;       // the file of an accumulation's state; empty: no token yet
  friend bool operator==(const UploadProgress&, const UploadProgress&) = default;
};

// Who asked for a tensor and how it is found. An upload and the tensor that it becomes share
// their origin.
struct Origin {
  std::string id;
  Owner owner;
  std::string request_id;        // may be empty
  std::string fingerprint;       // of the request; empty: none, or recorded before there were any
  bool from_upload = false;      // false: made by the server
  bool transient = false;        // belongs to the job of a Prune call
  std::string job;               // whose result it is; may be empty
  std::optional<GramSpec> gram;  // set when it is, or was, an accumulation
  friend bool operator==(const Origin&, const Origin&) = default;
};

// An upload, or the complete tensor that it has become.
struct TensorRecord : Origin {
  // The order of uploads and tensors, given by the catalog and never given again. A
  // tensor has another one than the upload that it was.
  int64_t number = 0;
  TensorSpec spec;  // of the tensor
  bool complete = false;
  UploadProgress progress;  // of a complete tensor its size and checksum
  absl::Time create_time;
  absl::Time use_time;  // of a complete tensor: when it was used last
  absl::Time expire_time = absl::InfiniteFuture();
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

// The name of every catalog that forgets its records.
inline constexpr char kMemoryStore[] = "memory";

// Thread-safe. A change of a durable catalog survives a crash and a power loss once the call has
// returned, unless said otherwise.
//
// Errors of all calls: ResourceExhausted (STORE_FULL), Internal or PermissionDenied
// (STORE_FAILED). A call that fails has changed nothing.
class TensorCatalog {
 public:
  virtual ~TensorCatalog() = default;

  // False: it keeps no records, and Load gives none.
  virtual bool durable() const = 0;

  struct Contents {
    std::vector<TensorRecord> records;  // by number
    std::string salt;                   // random; the same as long as the records live
    std::string store;                  // names the catalog; kMemoryStore where not durable
  };
  virtual absl::StatusOr<Contents> Load() = 0;

  // Returns its number, a new one. Takes the place of the record with this id, which is an upload
  // that has become this complete tensor, and of one with the same request id of the same tenant,
  // whose deletion failed.
  virtual absl::StatusOr<int64_t> Insert(const TensorRecord& record) = 0;
  // Stores the progress of an upload. Nothing happens when it is not there.
  virtual absl::Status Commit(std::string_view id, const UploadProgress& progress) = 0;
  // Ids that are not there are passed over.
  virtual absl::Status Delete(std::span<const std::string> ids) = 0;

  struct Use {
    std::string id;
    absl::Time time;
  };
  // A power loss may undo it.
  virtual absl::Status SetUseTimes(std::span<const Use> uses) = 0;
};

// Not durable.
std::unique_ptr<TensorCatalog> NewMemoryTensorCatalog();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_CATALOG_TENSOR_CATALOG_H_
