// The durable store of jobs.
#ifndef SPARSEFW_SERVER_STORAGE_SQLITE_JOB_STORE_H_
#define SPARSEFW_SERVER_STORAGE_SQLITE_JOB_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/jobs/job_store.h"
#include "server/storage/database.h"

namespace sparsefw::server {

// `database` outlives the store. What has returned survives a power failure, but for
// progress, which survives the end of the process. Page tokens stay valid as long as
// the database. A call costs one transaction; changes of several threads share one
// sync of the disk.
// Errors: Internal (STORE_FAILED)
absl::StatusOr<std::unique_ptr<JobStore>> NewSqliteJobStore(Database* database);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_SQLITE_JOB_STORE_H_
