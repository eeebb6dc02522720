#include "server/tensors/store/tenant_accounts.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

// `helps`: waiting does.
absl::Status Exceeded(std::string_view reason, const char* quota, int64_t limit, int64_t current,
                      bool helps, const std::string& message) {
  ReasonMetadata metadata = {{"quota", quota},
                             {"limit", absl::StrFormat("%d", limit)},
                             {"current", absl::StrFormat("%d", current)}};
  if (helps) metadata.emplace("retry_delay_ms", kRetryDelayMs);
  return WithReason(absl::ResourceExhaustedError(message), reason, metadata);
}

}  // namespace

TenantAccounts::Account& TenantAccounts::Find(const std::string& tenant) {
  Account& account = accounts_[tenant];
  if (account.bytes == nullptr) {
    account.bytes = ByteBudget::Create(std::numeric_limits<int64_t>::max());
  }
  return account;
}

absl::StatusOr<ByteBudget::Reservation> TenantAccounts::Reserve(const std::string& tenant,
                                                                int64_t bytes) {
  const std::optional<int64_t> limit = LimitsFor(limits_of_, tenant).max_tensor_bytes;
  MutexLock lock(mutex_);
  ByteBudget& budget = *Find(tenant).bytes;
  if (!limit.has_value()) return budget.Adopt(bytes);
  if (auto reservation = budget.TryReserve(bytes, *limit)) return *std::move(reservation);
  const int64_t used = budget.used();
  return Exceeded("QUOTA_TENSOR_BYTES", "max-tensor-bytes", *limit, used, bytes <= *limit,
                  absl::StrFormat("tensors and uploads of tenant %s must take at most "
                                  "max-tensor-bytes of %d together; they take %d, and %d more are "
                                  "needed",
                                  tenant, *limit, used, bytes));
}

ByteBudget::Reservation TenantAccounts::Adopt(const std::string& tenant, int64_t bytes) {
  MutexLock lock(mutex_);
  return Find(tenant).bytes->Adopt(bytes);
}

absl::Status TenantAccounts::OpenUpload(const std::string& tenant) {
  const std::optional<int64_t> limit = LimitsFor(limits_of_, tenant).max_uploads;
  MutexLock lock(mutex_);
  int64_t& uploads = Find(tenant).uploads;
  if (limit.has_value() && uploads >= *limit) {
    return Exceeded("QUOTA_UPLOADS", "max-uploads", *limit, uploads, *limit > 0,
                    absl::StrFormat("open uploads of tenant %s must be at most max-uploads of %d; "
                                    "there are %d",
                                    tenant, *limit, uploads));
  }
  ++uploads;
  return absl::OkStatus();
}

void TenantAccounts::AdoptUpload(const std::string& tenant) {
  MutexLock lock(mutex_);
  ++Find(tenant).uploads;
}

void TenantAccounts::CloseUpload(const std::string& tenant) {
  MutexLock lock(mutex_);
  --Find(tenant).uploads;
}

void TenantAccounts::DropEmpty() {
  MutexLock lock(mutex_);
  std::erase_if(accounts_, [](const auto& entry) {
    return entry.second.uploads == 0 && entry.second.bytes->used() == 0;
  });
}

}  // namespace sparsefw::server
