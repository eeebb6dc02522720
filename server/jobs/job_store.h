// The interface of the store of job metadata; server/storage has the store.
#ifndef SPARSEFW_SERVER_JOBS_JOB_STORE_H_
#define SPARSEFW_SERVER_JOBS_JOB_STORE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// The answer for a name that a store does not have: NotFound (JOB_NOT_FOUND).
inline absl::Status JobNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "there is no job \"%s\"", name);
}

// The reason of a job whose record is damaged: it is kept, in no list, and does not run,
// expire or end, until somebody deletes it.
inline constexpr Reason kJobDamaged = "JOB_DAMAGED";

// An upper end of what the job takes in a database: its row with the record, the progress and the
// fingerprint of its request, its entries in indexes, and what pages leave empty. A job that has
// not ended counts with the room of its result, so that its end always fits.
int64_t KeptBytes(const Job& job);

// Bytes of KeptBytes that the jobs of one tenant, and those of all, may count for.
struct JobRoom {
  std::optional<int64_t> tenant_bytes;  // nothing: no limit of the tenant's own
  int64_t all_bytes = std::numeric_limits<int64_t>::max();
  int64_t disk_bytes = std::numeric_limits<int64_t>::max();  // of all jobs together
};

struct JobStoreUsage {
  int64_t bytes = 0;    // of KeptBytes
  int64_t damaged = 0;  // jobs whose records are damaged
};

struct JobFilter {
  std::vector<JobState> states;               // empty: all
  std::map<std::string, std::string> labels;  // all must match
  std::string tenant = {};                    // empty: all
};

// Thread-safe. Knows nothing of queueing.
//
// Errors of all calls of a durable store, besides those named: ResourceExhausted
// (STORE_FULL), DataLoss (STORE_CORRUPT), Internal (STORE_FAILED).
class JobStore {
 public:
  struct RequestRecord {
    std::string job;
    std::string fingerprint;  // of the request body
  };
  struct Page {
    std::vector<Job> jobs;  // newest first
    std::string next_page_token;
  };

  virtual ~JobStore() = default;
  // True: jobs outlive the process.
  virtual bool durable() const = 0;
  // Stores a new job together with its request id (when that is not empty), or nothing.
  // Request ids belong to the tenant of the job's owner.
  // Errors: AlreadyExists      the name or the tenant's request id is taken
  //         ResourceExhausted  there is no room for it: QUOTA_JOB_BYTES, JOBS_FULL,
  //                            DISK_BUDGET
  virtual absl::Status Insert(const Job& job, std::string_view request_id,
                              std::string_view fingerprint, const JobRoom& room) = 0;
  // Update, UpdateProgress and Get: NotFound (JOB_NOT_FOUND).
  virtual absl::Status Update(const Job& job) = 0;
  // Stores the progress of a job that runs: nothing else of it has changed. Cheaper than Update: a
  // power failure may take it back.
  virtual absl::Status UpdateProgress(std::string_view name, const JobProgress& progress) = 0;
  // DataLoss (JOB_DAMAGED).
  virtual absl::StatusOr<Job> Get(std::string_view name) const = 0;
  // Whether the tenant has a job of this name. Reads nothing else of it, so that another tenant's
  // job costs what none costs.
  virtual absl::StatusOr<bool> Has(std::string_view name, std::string_view tenant) const = 0;
  virtual absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const = 0;
  // A page token stays valid while jobs are added and deleted: jobs that existed at
  // the first page and still exist are listed exactly once, newer jobs are not. A call looks
  // at a bounded number of jobs, so that a page before the last may be short, or empty.
  // Errors: InvalidArgument  page_size below 1 (PAGE_SIZE_INVALID), a token
  //         of another store (PAGE_TOKEN_INVALID)
  virtual absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                                    std::string_view page_token) const = 0;
  // At most `limit` jobs that have ended and whose expire_time is not after `now`, the
  // earliest first. Does not read the others.
  virtual absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const = 0;
  // Forgets its request id too. NotFound (JOB_NOT_FOUND).
  virtual absl::Status Delete(std::string_view name) = 0;
  // Jobs by state, for metrics; states without a job are left out.
  virtual absl::StatusOr<std::map<JobState, int64_t>> CountByState() const = 0;
  virtual absl::StatusOr<JobStoreUsage> Usage() const = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_STORE_H_
