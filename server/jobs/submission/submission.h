// Turns a spec into a queued job.
#ifndef SPARSEFW_SERVER_JOBS_SUBMISSION_SUBMISSION_H_
#define SPARSEFW_SERVER_JOBS_SUBMISSION_SUBMISSION_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/identity/tenants.h"
#include "server/jobs/job.h"
#include "server/jobs/lifecycle/guarded_runner.h"
#include "server/jobs/lifecycle/state_machine.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

struct SubmissionLimits {
  int max_queued_jobs = 10000;  // >= 1; those being validated count
  // Limits of KeptBytes: of all jobs together, and of those that the disk has room for now, which
  // is asked at every submission; empty: any.
  int64_t max_job_bytes = std::numeric_limits<int64_t>::max();
  std::function<int64_t()> disk_room = {};
  absl::Duration max_result_ttl = absl::InfiniteDuration();
};

// UNAVAILABLE (DRAINING), with a retry delay.
absl::Status DrainingError();

// Owns the limits on queued jobs and the request ids in progress. Thread-safe. Its
// lock comes after ActiveJob::mutex and before those of Scheduler and JobTable.
class Submission {
 public:
  using FindJob = std::function<absl::StatusOr<Job>(std::string_view name)>;
  // `find` is JobManager::Get. What the others refer to outlives it.
  Submission(SubmissionLimits limits, LimitsOfTenant limits_of, const JobParts& parts,
             StateMachine& states, FindJob find);

  // As JobManager::Submit, with validate_only for Validate, and JobManager::Check.
  absl::StatusOr<Job> Submit(const JobSpec& spec, std::string_view request_id,
                             const RequestDigest& digest, const Owner& owner);
  absl::StatusOr<Job> Validate(const JobSpec& spec, const Owner& owner);
  absl::Status Check(const JobSpec& spec, const InputSpecs& inputs, std::string_view tenant);
  void StopAccepting();

 private:
  // A request id in progress, with the tenant that it belongs to.
  struct Request {
    std::string tenant;
    std::string id;  // empty: none
    friend auto operator<=>(const Request&, const Request&) = default;
  };

  // What the server and the tenant's limits allow by now.
  absl::Status CheckRanges(const JobSpec& spec, std::string_view tenant) const;
  JobRoom RoomOf(const std::string& tenant) const;
  absl::StatusOr<std::optional<Job>> FindEarlier(const Request& request,
                                                 const RequestDigest& digest);
  void ClaimRequest(const Request& request);
  void ReleaseRequest(const Request& request);
  absl::Status ReserveSlot(const std::string& tenant);
  void ReleaseSlot(const std::string& tenant);

  const SubmissionLimits limits_;
  const LimitsOfTenant limits_of_;
  const JobParts parts_;
  StateMachine& states_;
  const FindJob find_;

  Mutex mutex_;
  CondVar claims_;  // claimed_requests_
  bool accepting_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<std::string, int64_t> submitting_ ABSL_GUARDED_BY(mutex_);  // by tenant, above 0
  std::set<Request> claimed_requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SUBMISSION_SUBMISSION_H_
