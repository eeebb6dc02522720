#include "server/tensors/store/tenant_accounts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

absl::StatusOr<Budget::Reservation> TenantAccounts::Reserve(const std::string& tenant,
                                                            int64_t bytes) {
  const std::optional<int64_t> limit = LimitsFor(limits_of_, tenant).max_tensor_bytes;
  MutexLock lock(mutex_);
  Budget& budget = *accounts_[tenant].bytes;
  if (!limit.has_value()) return budget.Adopt(bytes);
  if (auto reservation = budget.TryReserve(bytes, *limit)) return *std::move(reservation);
  const int64_t used = budget.used();
  return QuotaExceeded(
      "QUOTA_TENSOR_BYTES", "max-tensor-bytes", *limit, used, bytes <= *limit,
      absl::StrFormat("tensors and uploads of tenant %s must take at most "
                      "max-tensor-bytes of %d together; they take %d, and %d more are "
                      "needed",
                      tenant, *limit, used, bytes));
}

Budget::Reservation TenantAccounts::Adopt(const std::string& tenant, int64_t bytes) {
  MutexLock lock(mutex_);
  return accounts_[tenant].bytes->Adopt(bytes);
}

absl::Status TenantAccounts::CheckPlaces(const std::string& tenant, int64_t own,
                                         int64_t count) const {
  const int64_t limit = places_->limit();
  const int64_t used = places_->used();
  if (count > limit - used) {
    absl::Status refused =
        Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS",
               "tensors and uploads must be at most max-tensors of %d; there are %d, results of "
               "accepted jobs included, and %d more are needed",
               limit, used, count);
    return count > limit ? refused : WithMetadata(refused, kRetryDelayKey, kRetryDelayMs);
  }
  const std::optional<int64_t> quota = LimitsFor(limits_of_, tenant).max_tensors;
  if (!quota.has_value() && !many_) return absl::OkStatus();
  const int64_t share = std::max<int64_t>(0, (limit - (used - own)) / 2);
  const int64_t most = quota.value_or(share);
  if (count <= most - own) return absl::OkStatus();
  const std::string rule =
      quota.has_value() ? absl::StrFormat("max-tensors of %d", most)
                        : absl::StrFormat("%d, half of what others leave of max-tensors", most);
  return QuotaExceeded(
      "QUOTA_TENSORS", "max-tensors", most, own, count <= most,
      absl::StrFormat("tensors and uploads of tenant %s must be at most %s; there are "
                      "%d, results of accepted jobs included, and %d more are needed",
                      tenant, rule, own, count));
}

absl::StatusOr<Budget::Reservation> TenantAccounts::ReservePlaces(const std::string& tenant,
                                                                  int64_t count) {
  MutexLock lock(mutex_);
  Budget& own = *accounts_[tenant].places;
  SPARSEFW_RETURN_IF_ERROR(CheckPlaces(tenant, own.used(), count));
  // Checked, and places are taken under the lock only.
  Budget::Reservation places = places_->Adopt(count);
  places.Join(own.Adopt(count));
  return places;
}

Budget::Reservation TenantAccounts::AdoptPlaces(const std::string& tenant, int64_t count) {
  MutexLock lock(mutex_);
  Budget::Reservation places = places_->Adopt(count);
  places.Join(accounts_[tenant].places->Adopt(count));
  return places;
}

absl::Status TenantAccounts::OpenUpload(const std::string& tenant) {
  const std::optional<int64_t> limit = LimitsFor(limits_of_, tenant).max_uploads;
  MutexLock lock(mutex_);
  int64_t& uploads = accounts_[tenant].uploads;
  if (limit.has_value() && uploads >= *limit) {
    return QuotaExceeded(
        "QUOTA_UPLOADS", "max-uploads", *limit, uploads, *limit > 0,
        absl::StrFormat("open uploads of tenant %s must be at most max-uploads of %d; "
                        "there are %d",
                        tenant, *limit, uploads));
  }
  ++uploads;
  return absl::OkStatus();
}

void TenantAccounts::AdoptUpload(const std::string& tenant) {
  MutexLock lock(mutex_);
  ++accounts_[tenant].uploads;
}

void TenantAccounts::CloseUpload(const std::string& tenant) {
  MutexLock lock(mutex_);
  --accounts_[tenant].uploads;
}

void TenantAccounts::DropEmpty() {
  MutexLock lock(mutex_);
  std::erase_if(accounts_, [](const auto& entry) {
    return entry.second.uploads == 0 && entry.second.bytes->used() == 0 &&
           entry.second.places->used() == 0;
  });
}

}  // namespace sparsefw::server
