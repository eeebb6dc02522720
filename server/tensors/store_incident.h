// Damage that a store finds in what an earlier run has left.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_INCIDENT_H_
#define SPARSEFW_SERVER_TENSORS_STORE_INCIDENT_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparsefw::server {

struct StoreIncident {
  // The kinds, as the log has them.
  static constexpr std::string_view kOrphanFile = "orphan_file";  // no record names it: removed
  // A file of a record: the tensor or upload is forgotten.
  static constexpr std::string_view kMissingFile = "missing_file";
  // An upload's files are not as recorded: it is forgotten.
  static constexpr std::string_view kDamagedUpload = "damaged_upload";
  // A tensor's size or checksum: it is listed, but refused to whoever uses it.
  static constexpr std::string_view kCorruptTensor = "corrupt_tensor";
  // A tensor could not be read; tried again at its use.
  static constexpr std::string_view kCheckFailed = "check_failed";
  static constexpr std::string_view kDamagedJob = "damaged_job";  // set apart: see kJobDamaged
  static constexpr std::string_view kDamagedProgress = "damaged_progress";  // the job goes on

  std::string_view kind;
  std::string name;    // "tensors/<id>", "uploads/<id>", "jobs/<id>"; of a file its id
  std::string tenant;  // of a job
  absl::Status cause;
};
using OnStoreIncident = std::function<void(const StoreIncident&)>;

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_INCIDENT_H_
