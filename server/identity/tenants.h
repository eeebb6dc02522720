// Limits and weights of the tenants: --tenants FILE.
//
//   # comment
//   [alice]
//   max-queued-jobs = 1000
//   max-running-jobs = 4
//   max-tensor-bytes = 64GiB
//   max-tensors = 10000
//   max-uploads = 16
//   max-job-bytes = 64MiB
//   weight = 2
//   priority-max = 50
//
//   [*]
//   weight = 1
//
// Section [*] is for every tenant without a section of its own; without it only
// the tenants of the file may call. A key that a section leaves out is that of
// [*], else as in TenantLimits.
#ifndef SPARSEFW_SERVER_IDENTITY_TENANTS_H_
#define SPARSEFW_SERVER_IDENTITY_TENANTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// 1 to 64 letters, digits, '.', '_', '@' and '-', the first a letter or a digit:
// safe in logs, as a key of a file, and beside a colon.
bool IsTenantName(std::string_view name);

// The rule, for messages.
inline constexpr std::string_view kTenantNameRule =
    "1 to 64 letters, digits, '.', '_', '@' and '-', beginning with a letter or a digit";

// Nothing: no limit of the tenant's own.
struct TenantLimits {
  std::optional<int64_t> max_queued_jobs;
  std::optional<int64_t> max_running_jobs;
  std::optional<int64_t> max_tensor_bytes;  // of all its tensors and uploads together
  std::optional<int64_t> max_tensors;       // with uploads and results of accepted jobs
  std::optional<int64_t> max_uploads;       // open at the same time
  std::optional<int64_t> max_job_bytes;     // of all jobs that are kept, with their results
  double weight = 1;                        // of its share of running work
  int priority_max = 100;                   // the highest that its jobs may have
  friend bool operator==(const TenantLimits&, const TenantLimits&) = default;
};

// The limits of a tenant as they are now: they change while the server runs.
// Thread-safe; called with locks held, so it must not call back. Empty: no limits.
using LimitsOfTenant = std::function<TenantLimits(std::string_view tenant)>;
inline TenantLimits LimitsFor(const LimitsOfTenant& limits_of, std::string_view tenant) {
  return limits_of ? limits_of(tenant) : TenantLimits();
}

// A refusal by a limit of the tenant's own; `helps`: waiting does.
absl::Status QuotaExceeded(Reason reason, const char* quota, int64_t limit, int64_t current,
                           bool helps, const std::string& message);

// Immutable.
class TenantTable {
 public:
  // Errors: InvalidArgument (CONFIGURATION_INVALID) with file, line and rule: a key
  //         or a form that is not known, a section or key that is there twice, a
  //         value out of range
  static absl::StatusOr<TenantTable> Parse(std::string_view text, std::string_view file);

  // Null: the tenant may not call.
  const TenantLimits* Find(std::string_view tenant) const;
  size_t size() const { return tenants_.size(); }  // sections but [*]
  bool empty() const { return tenants_.empty() && !others_.has_value(); }

 private:
  std::map<std::string, TenantLimits, std::less<>> tenants_;
  std::optional<TenantLimits> others_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_IDENTITY_TENANTS_H_
