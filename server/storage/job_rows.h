// Rows of jobs: a record, and columns and index entries that come from it.
#ifndef SPARSEFW_SERVER_STORAGE_JOB_ROWS_H_
#define SPARSEFW_SERVER_STORAGE_JOB_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "SQLiteCpp/SQLiteCpp.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/jobs/job_store.h"
#include "server/storage/connection.h"

namespace sparsefw::server {

// The bytes of a column, valid until the next step.
std::string_view BytesOf(const SQLite::Column& column);

// A job as it lies in the table.
struct JobRow {
  int64_t number = 0;
  std::string name;
  std::string tenant;
  int state = 0;
  uint32_t crc32c = 0;
  std::string record;
  std::optional<std::string> progress;
};
// Columns of the table `jobs`, for RowOf.
inline constexpr char kRowColumns[] =
    "jobs.number, jobs.name, jobs.tenant, jobs.state, jobs.crc32c, jobs.record, jobs.progress";
JobRow RowOf(SQLite::Statement& statement);

uint32_t ChecksumOf(std::string_view record);

// The job without its progress. Errors: Internal (STORE_FAILED)  the record is damaged:
// it has another checksum, cannot be decoded, or is not that of its row
absl::StatusOr<Job> JobOf(const JobRow& row);

// A label as the table job_labels has it: the first 8 bytes of a SHA-256, since a label
// may have hundreds of bytes and a job dozens of them.
int64_t LabelHash(const std::string& tenant, const std::string& key, const std::string& value);

// They go with the row.
void InsertLabels(SQLite::Database& db, int64_t number, const Job& job);

// Rows of one page of a list, newest first.
struct JobRows {
  std::vector<JobRow> rows;
  int64_t next = 0;  // the next page begins below this number; 0: there is none
};
// At most `page_size` rows below `before` that match; of labels only where the filter names
// a tenant. Looks at a bounded number of rows and reads a bounded number of bytes, so there
// may be a next page after a short one, or an empty one.
JobRows ReadJobs(SQLite::Database& db, const JobFilter& filter, int64_t before, int page_size);

// OK where `bytes` more fit into the room. The pages of the database count against the disk where
// it is `durable`; in memory the bytes of the jobs alone do.
absl::Status CheckRoom(Connection& db, bool durable, const JobRoom& room, const std::string& tenant,
                       int64_t bytes);

// Fills what schema version 2 keeps beside the records; for the step from version 1.
void IndexJobs(SQLite::Database& db);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_JOB_ROWS_H_
