// The room that tensors and uploads of each tenant take, and its limits.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_TENANT_ACCOUNTS_H_
#define SPARSEFW_SERVER_TENSORS_STORE_TENANT_ACCOUNTS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/identity/tenants.h"
#include "server/tensors/store/budget.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Thread-safe; its lock is a leaf. Bytes are those of the memory budget: of an upload
// its full size, of an accumulation its sums too. Places are for tensors, uploads and the
// results of accepted jobs: `max_places` in all. Where there are `many` tenants one without a
// quota has at most half of what the others leave, so that none takes the last ones.
//
// The limits are asked for at every request, so that a change takes effect at once:
// what there is stays, and more is refused until there is less.
class TenantAccounts {
 public:
  TenantAccounts(LimitsOfTenant limits_of, int64_t max_places, bool many)
      : limits_of_(std::move(limits_of)), places_(Budget::Create(max_places)), many_(many) {}

  // Errors: ResourceExhausted (QUOTA_TENSOR_BYTES; metadata quota, limit, current and,
  //         where the bytes could be free later, retry_delay_ms)
  absl::StatusOr<Budget::Reservation> Reserve(const std::string& tenant, int64_t bytes);
  // Counts what is there already, or was accepted.
  Budget::Reservation Adopt(const std::string& tenant, int64_t bytes);

  // Errors: ResourceExhausted (QUOTA_TENSORS, as above; TOO_MANY_TENSORS, with retry_delay_ms
  //         where they could be free later)
  absl::StatusOr<Budget::Reservation> ReservePlaces(const std::string& tenant, int64_t count);
  Budget::Reservation AdoptPlaces(const std::string& tenant, int64_t count);
  int64_t places_used() const { return places_->used(); }

  // One more upload. Errors: ResourceExhausted (QUOTA_UPLOADS; metadata as above)
  absl::Status OpenUpload(const std::string& tenant);
  void AdoptUpload(const std::string& tenant);
  void CloseUpload(const std::string& tenant);

  // Forgets tenants that have nothing.
  void DropEmpty();

 private:
  struct Account {
    std::shared_ptr<Budget> bytes = Budget::Create(std::numeric_limits<int64_t>::max());
    std::shared_ptr<Budget> places = Budget::Create(std::numeric_limits<int64_t>::max());
    int64_t uploads = 0;
  };
  // Whether a tenant that has `own` places may have `count` more.
  absl::Status CheckPlaces(const std::string& tenant, int64_t own, int64_t count) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LimitsOfTenant limits_of_;
  const std::shared_ptr<Budget> places_;  // of all tenants
  const bool many_;
  Mutex mutex_;
  std::map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_TENANT_ACCOUNTS_H_
