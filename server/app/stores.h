// The server's jobs, tensors and checkpoints, in memory or in the state folder.
#ifndef SPARSEFW_SERVER_APP_STORES_H_
#define SPARSEFW_SERVER_APP_STORES_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/app/config.h"
#include "server/app/observe/logging.h"
#include "server/identity/tenants.h"
#include "server/jobs/job_store.h"
#include "server/net/descriptor.h"
#include "server/runner/checkpoint_folder.h"
#include "server/storage/database.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"

namespace sparsefw::server {

// Opened together and closed in the reverse order. Each part is thread-safe.
class Stores {
 public:
  // `backend` and `logger` outlive the stores.
  // Errors: those of HoldStateFolder, Database, TensorStore and CheckpointFolder
  static absl::StatusOr<std::unique_ptr<Stores>> Open(const ServerConfig& config,
                                                      const Backend& backend,
                                                      int64_t device_sum_bytes,
                                                      LimitsOfTenant limits_of, Logger* logger);

  JobStore& jobs() { return *jobs_; }
  TensorStore& tensors() { return *tensors_; }
  // Bytes of the database's file; 0 with --store memory.
  int64_t database_bytes() const { return database_ == nullptr ? 0 : database_->FileBytes(); }
  // JobManagerOptions::disk_room; empty where there is no disk budget or no database.
  std::function<int64_t()> DiskRoomOfJobs();
  // Gives the disk back what deleted jobs have left in the database.
  void CompactDatabase();
  CheckpointFolder* checkpoints() { return checkpoints_.get(); }  // null with --store memory

  // Removes the checkpoints of jobs that have ended, and the remains of interrupted writes. Called
  // before jobs are recovered.
  absl::Status SweepCheckpoints();

 private:
  Stores(int64_t disk_budget_bytes, Logger* logger)
      : disk_budget_bytes_(disk_budget_bytes), logger_(*logger) {}
  absl::Status OpenDatabase(const ServerConfig& config);
  absl::Status OpenTensors(const ServerConfig& config, const Backend& backend,
                           int64_t device_sum_bytes, LimitsOfTenant limits_of);
  int64_t DiskUsedByJobs() const;
  absl::Status OpenCheckpoints(const ServerConfig& config);
  void LogTensors(const ServerConfig& config);

  const int64_t disk_budget_bytes_;
  Logger& logger_;
  Descriptor state_folder_;                        // none with --store memory,
  std::unique_ptr<Database> database_;             // likewise,
  std::unique_ptr<TensorCatalog> tensor_catalog_;  // likewise
  std::unique_ptr<TensorStore> tensors_;
  std::unique_ptr<JobStore> jobs_;
  std::unique_ptr<CheckpointFolder> checkpoints_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_STORES_H_
