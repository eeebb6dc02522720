// Weighted fair shares of running work between tenants.
#ifndef SPARSEFW_SERVER_JOBS_SCHEDULING_FAIR_SHARE_H_
#define SPARSEFW_SERVER_JOBS_SCHEDULING_FAIR_SHARE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "server/identity/tenants.h"
#include "server/jobs/lifecycle/active_job.h"

namespace sparsefw::server {

// How many tenants have jobs, for metrics: numbers, never names.
struct TenantCounts {
  int64_t waiting = 0;  // with queued jobs
  int64_t running = 0;  // with running ones
};

// Start-time fair queueing (Goyal, Vin and Cheng 1996): a tenant's account is the
// seconds that its jobs have run, divided by its weight, and the tenant with the least
// is next. Ties go to the name that comes first. docs/adr/0022-fair-share.md.
//
//  - A job that starts is charged its estimate (Estimate) at once, what it runs beyond
//    that as it goes, and the difference to the truth when it ends: shares are of
//    seconds, not of estimates.
//  - Whoever had nothing to run begins where the tenant stood that was served last: it
//    saves nothing up for later, nor pays for what it had of an idle server.
//
// Not thread-safe. Calls cost O(log tenants), ChargeRunning O(running jobs).
class FairShare {
 public:
  explicit FairShare(LimitsOfTenant limits_of) : limits_of_(std::move(limits_of)) {}

  // A job of the tenant has come to the queue, or has left it.
  void Queued(const std::string& tenant);
  void Dequeued(const std::string& tenant);
  // A job that has left the queue runs.
  void Started(const ActiveJob& job, bool on_device, absl::Time now);
  void Ended(const ActiveJob& job, absl::Time now);
  // Brings the accounts of running jobs up to date.
  void ChargeRunning(absl::Time now);
  // The tenant does not want what it could have now: it saves nothing up.
  void Forgo(const std::string& tenant);

  // The accounts of the tenants with queued jobs, with their names: the next comes first.
  const std::set<std::pair<double, std::string>>& waiting() const { return waiting_; }
  int64_t running(std::string_view tenant) const;
  TenantCounts tenants() const;  // costs O(tenants)
  // Whether the tenant's limits let one more of its jobs run.
  bool MayRun(const std::string& tenant) const;

 private:
  struct Account {
    double served = 0;  // seconds by weight
    int64_t queued = 0;
    int64_t running = 0;
  };
  struct Charge {
    std::string tenant;
    double weight = 1;  // at the start
    double seconds = 0;
    absl::Time start;
    bool on_device = false;
  };
  using Accounts = std::map<std::string, Account, std::less<>>;

  // How long a job will run: seconds = cost · s, where s, seconds per operation, is kept for the
  // CPU and for devices apart: a guess at first, then the moving average
  //   s <- s + (seconds / cost - s) / 8
  // of the runs that nobody stopped. Costs are rough, so this is good to a factor of a few between
  // jobs of different kinds. Fair shares need no more: what a run has really taken replaces the
  // estimate.
  double Estimate(double cost, bool on_device) const;
  void Measured(double cost, bool on_device, double seconds);
  void SetServed(Accounts::iterator account, double served);
  void AddSeconds(Charge& charge, double seconds);
  void Settle(Accounts::iterator account);

  const LimitsOfTenant limits_of_;
  double cpu_seconds_ = 1e-10;  // per operation: 10 Gflop/s
  double device_seconds_ = 1e-12;
  double last_served_ = 0;  // account of the tenant whose job started last, before that
  Accounts accounts_;       // with jobs, or above last_served_
  std::set<std::pair<double, std::string>> waiting_;
  std::set<std::pair<double, std::string>> idle_;  // without jobs
  std::map<const ActiveJob*, Charge> charges_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_SCHEDULING_FAIR_SHARE_H_
