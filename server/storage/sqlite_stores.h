// The stores of jobs and tensors that lie in a database.
#ifndef SPARSEFW_SERVER_STORAGE_SQLITE_STORES_H_
#define SPARSEFW_SERVER_STORAGE_SQLITE_STORES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/jobs/job_store.h"
#include "server/storage/database.h"
#include "server/tensors/catalog/tensor_catalog.h"
#include "server/tensors/store_incident.h"

namespace sparsefw::server {

// `database` outlives the store. A change that has returned survives a power failure; progress
// survives the end of the process only. Page tokens stay valid as long as the database. A call
// costs one transaction; changes of several threads share one sync of the disk. Every record is
// read once at the start. `on_damage` is called then, also for jobs that were set apart earlier,
// and by calls that find damage; it must not call the store.
// Errors: DataLoss (STORE_CORRUPT), Internal (STORE_FAILED)
absl::StatusOr<std::unique_ptr<JobStore>> NewSqliteJobStore(Database* database,
                                                            OnStoreIncident on_damage = {});

// Not durable: in a database of its own, in memory.
absl::StatusOr<std::unique_ptr<JobStore>> NewMemoryJobStore();

// `database` outlives the catalog.
std::unique_ptr<TensorCatalog> NewSqliteTensorCatalog(Database* database);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_SQLITE_STORES_H_
