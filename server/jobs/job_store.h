// The interface of the store of job metadata: in memory below, durable in
// server/storage.
#ifndef SPARSEFW_SERVER_JOBS_JOB_STORE_H_
#define SPARSEFW_SERVER_JOBS_JOB_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// The answer for a name that a store does not have: NotFound (JOB_NOT_FOUND).
absl::Status JobNotFound(std::string_view name);

struct JobFilter {
  std::vector<JobState> states;               // empty: all
  std::map<std::string, std::string> labels;  // all must match
  std::string tenant = {};                    // empty: all
};

// Thread-safe. Knows nothing of queueing.
//
// Errors of all calls of a durable store, besides those named: ResourceExhausted
// (STORE_FULL), Internal (STORE_FAILED).
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
  // Jobs outlive the process.
  virtual bool durable() const = 0;
  // Stores a new job together with its request id (when that is not empty), or nothing.
  // Request ids belong to the tenant of the job's owner.
  // Errors: AlreadyExists  the name or the tenant's request id is taken
  virtual absl::Status Insert(const Job& job, std::string_view request_id,
                              std::string_view fingerprint) = 0;
  // NotFound JOB_NOT_FOUND, also of the next two.
  virtual absl::Status Update(const Job& job) = 0;
  // Of a job that differs from the stored one in progress and revision only. Cheaper
  // than Update: a power failure may take it back.
  virtual absl::Status UpdateProgress(const Job& job) = 0;
  virtual absl::StatusOr<Job> Get(std::string_view name) const = 0;
  virtual absl::StatusOr<std::optional<RequestRecord>> FindRequest(
      std::string_view tenant, std::string_view request_id) const = 0;
  // A page token stays valid while jobs are added and deleted: jobs that existed at
  // the first page and still exist are listed exactly once, newer jobs are not.
  // Errors: InvalidArgument  page_size below 1 (PAGE_SIZE_INVALID), a token
  //         of another store (PAGE_TOKEN_INVALID)
  virtual absl::StatusOr<Page> List(const JobFilter& filter, int page_size,
                                    std::string_view page_token) const = 0;
  // At most `limit` jobs that have ended and whose expire_time is not after `now`, the
  // earliest first. Does not read the others.
  virtual absl::StatusOr<std::vector<Job>> ListExpired(absl::Time now, int limit) const = 0;
  // Also forgets its request id. NotFound JOB_NOT_FOUND.
  virtual absl::Status Delete(std::string_view name) = 0;
  // Jobs by state, for metrics; states without a job are left out.
  virtual absl::StatusOr<std::map<JobState, int64_t>> CountByState() const = 0;
};

// Not durable.
std::unique_ptr<JobStore> NewMemoryJobStore();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_STORE_H_
