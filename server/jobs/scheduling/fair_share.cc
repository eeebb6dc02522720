#include "server/jobs/scheduling/fair_share.h"

#include <algorithm>
#include <optional>

namespace sparsefw::server {
namespace {

// An estimate is no longer: what a run takes beyond that is accounted for while it runs.
constexpr double kMostSeconds = 60;

}  // namespace

void FairShare::Queued(const std::string& tenant) {
  const auto account = accounts_.try_emplace(tenant).first;
  if (account->second.queued == 0) {
    idle_.erase({account->second.served, tenant});
    if (account->second.running == 0) {
      account->second.served = std::max(account->second.served, last_served_);
    }
    waiting_.emplace(account->second.served, tenant);
  }
  ++account->second.queued;
}

void FairShare::Dequeued(const std::string& tenant) {
  const auto account = accounts_.find(tenant);
  if (--account->second.queued > 0) return;
  waiting_.erase({account->second.served, tenant});
  Settle(account);
}

void FairShare::Started(const ActiveJob& job, bool on_device, absl::Time now) {
  const auto account = accounts_.try_emplace(job.tenant).first;
  idle_.erase({account->second.served, job.tenant});
  ++account->second.running;
  last_served_ = std::max(last_served_, account->second.served);
  Charge& charge = charges_[&job];
  charge = {job.tenant, LimitsFor(limits_of_, job.tenant).weight, 0, now, on_device};
  AddSeconds(charge, Estimate(job.cost, on_device));
  // Idle accounts behind it would begin anew where they stand: they need not be kept.
  while (!idle_.empty() && idle_.begin()->first <= last_served_) {
    accounts_.erase(accounts_.find(idle_.begin()->second));
    idle_.erase(idle_.begin());
  }
}

void FairShare::Ended(const ActiveJob& job, absl::Time now) {
  const auto charge = charges_.find(&job);
  if (charge == charges_.end()) return;
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - charge->second.start));
  AddSeconds(charge->second, seconds - charge->second.seconds);
  if (!job.stop.requested()) Measured(job.cost, charge->second.on_device, seconds);
  charges_.erase(charge);
  const auto account = accounts_.find(job.tenant);
  --account->second.running;
  Settle(account);
}

void FairShare::ChargeRunning(absl::Time now) {
  for (auto& [job, charge] : charges_) {
    const double seconds = absl::ToDoubleSeconds(now - charge.start);
    if (seconds > charge.seconds) AddSeconds(charge, seconds - charge.seconds);
  }
}

void FairShare::Forgo(const std::string& tenant) {
  const auto account = accounts_.find(tenant);
  if (account->second.served < last_served_) SetServed(account, last_served_);
}

int64_t FairShare::running(std::string_view tenant) const {
  const auto account = accounts_.find(tenant);
  return account == accounts_.end() ? 0 : account->second.running;
}

TenantCounts FairShare::tenants() const {
  TenantCounts counts{.waiting = static_cast<int64_t>(waiting_.size())};
  for (const auto& [tenant, account] : accounts_) counts.running += account.running > 0;
  return counts;
}

bool FairShare::MayRun(const std::string& tenant) const {
  const std::optional<int64_t> most = LimitsFor(limits_of_, tenant).max_running_jobs;
  return !most.has_value() || running(tenant) < *most;
}

double FairShare::Estimate(double cost, bool on_device) const {
  return std::clamp(cost * (on_device ? device_seconds_ : cpu_seconds_), 0.0, kMostSeconds);
}

void FairShare::Measured(double cost, bool on_device, double seconds) {
  if (!(cost > 0) || !(seconds > 0)) return;
  double& speed = on_device ? device_seconds_ : cpu_seconds_;
  speed += (seconds / cost - speed) / 8;
}

void FairShare::AddSeconds(Charge& charge, double seconds) {
  charge.seconds += seconds;
  const auto account = accounts_.find(charge.tenant);
  SetServed(account, account->second.served + seconds / charge.weight);
}

void FairShare::SetServed(Accounts::iterator account, double served) {
  auto& [tenant, one] = *account;
  if (one.queued > 0) waiting_.erase({one.served, tenant});
  one.served = served;
  if (one.queued > 0) waiting_.emplace(one.served, tenant);
}

// Called when a job has left the queue or has ended.
void FairShare::Settle(Accounts::iterator account) {
  auto& [tenant, one] = *account;
  if (one.queued > 0 || one.running > 0) return;
  idle_.emplace(one.served, tenant);
}

}  // namespace sparsefw::server
