// What the server keeps: jobs, tensors, checkpoints, in memory or in the state folder.
#ifndef SPARSEFW_SERVER_APP_STORES_H_
#define SPARSEFW_SERVER_APP_STORES_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/app/runner/checkpoint_folder.h"
#include "server/identity/tenants.h"
#include "server/jobs/job_store.h"
#include "server/rpc/runtime/transient_tensors.h"
#include "server/storage/database.h"
#include "server/storage/state_folder.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Opened together and closed in the reverse order. Each part is thread-safe.
class Stores {
 public:
  // `backend` and `logger` outlive the stores.
  // Errors: those of StateFolder, Database, TensorStore and CheckpointFolder
  static absl::StatusOr<std::unique_ptr<Stores>> Open(const ServerConfig& config,
                                                      const Backend& backend,
                                                      LimitsOfTenant limits_of, Logger* logger);

  JobStore& jobs() { return *jobs_; }
  TensorStore& tensors() { return *tensors_; }
  TransientTensors& transient() { return *transient_; }
  CheckpointFolder* checkpoints() { return checkpoints_.get(); }  // null with --store memory

  // Removes the checkpoints of jobs that have ended, and what interrupted writes have
  // left. Before jobs are recovered.
  absl::Status SweepCheckpoints();

 private:
  explicit Stores(Logger* logger) : logger_(*logger) {}
  absl::Status OpenDatabase(const ServerConfig& config);
  absl::Status OpenTensors(const ServerConfig& config, const Backend& backend,
                           LimitsOfTenant limits_of);
  absl::Status OpenCheckpoints(const ServerConfig& config);
  void LogTensors(const ServerConfig& config);

  Logger& logger_;
  std::unique_ptr<StateFolder> state_folder_;      // null with --store memory,
  std::unique_ptr<Database> database_;             // likewise,
  std::unique_ptr<TensorCatalog> tensor_catalog_;  // likewise
  std::unique_ptr<TensorStore> tensors_;
  std::unique_ptr<TransientTensors> transient_;
  std::unique_ptr<JobStore> jobs_;
  std::unique_ptr<CheckpointFolder> checkpoints_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_STORES_H_
