// Admission: what uploads and results take of the budgets.
#include <utility>

#include "absl/strings/str_format.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr std::string_view kUpload = "what a tensor needs while it is made";
constexpr std::string_view kResults = "the results of one job";

absl::Status TooLarge(std::string_view what, int64_t bytes, std::string_view limit_name,
                      int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "%s must be at most %s of %d bytes; got %d bytes", what, limit_name, limit, bytes)),
      "TENSOR_TOO_LARGE", {{"max_bytes", absl::StrFormat("%d", limit)}});
}

absl::Status NotFree(Reason reason, std::string_view what, int64_t bytes, std::string_view of,
                     int64_t used, int64_t limit) {
  return RefuseForNow(absl::StatusCode::kResourceExhausted, reason,
                      "%d bytes must be free in the %s for %s; %d of %d are in use", bytes, of,
                      what, used, limit);
}

}  // namespace

absl::Status TensorStore::CheckBytes(std::string_view what, int64_t host, int64_t disk) const {
  if (host > budget_->limit()) return TooLarge(what, host, "budget_bytes", budget_->limit());
  if (disk > disk_budget_->limit()) {
    return TooLarge(what, disk, "disk_budget_bytes", disk_budget_->limit());
  }
  return absl::OkStatus();
}

absl::StatusOr<Budget::Reservation> TensorStore::ReserveHost(std::string_view what, int64_t bytes) {
  if (auto reservation = budget_->TryReserve(bytes)) return *std::move(reservation);
  return NotFree("HOST_MEMORY", what, bytes, "memory budget", budget_->used(), budget_->limit());
}

int64_t TensorStore::DiskUsedBeside() const {
  if (options_.disk_budget_bytes == 0 || !options_.disk_used_beside) return 0;
  return options_.disk_used_beside();
}

absl::StatusOr<Budget::Reservation> TensorStore::ReserveDisk(std::string_view what, int64_t bytes,
                                                             int64_t beside) {
  auto reservation = disk_budget_->TryReserve(bytes, disk_budget_->limit() - beside);
  if (reservation) return *std::move(reservation);
  return NotFree("DISK_BUDGET", what, bytes, "disk budget", disk_budget_->used() + beside,
                 disk_budget_->limit());
}

absl::StatusOr<ContentRoom> TensorStore::ReserveUpload(const Request& request,
                                                       const std::string& id, bool recorded,
                                                       int64_t disk_beside) {
  if (request.tensor_bytes > options_.max_tensor_bytes) {
    return TooLarge("a tensor", request.tensor_bytes, "max_tensor_bytes",
                    options_.max_tensor_bytes);
  }
  const UploadRoom bytes = RoomOf(request.body.spec, recorded);
  SPARSEFW_RETURN_IF_ERROR(CheckBytes(kUpload, bytes.host, bytes.disk));
  const std::string& tenant = request.body.owner.tenant;
  ContentRoom room{id, spool_, {}, {}, {}, catalog_.durable(), options_.commit_interval_bytes};
  SPARSEFW_ASSIGN_OR_RETURN(room.place, accounts_.ReservePlaces(tenant, 1));
  SPARSEFW_ASSIGN_OR_RETURN(room.host, ReserveHost(kUpload, bytes.host));
  SPARSEFW_ASSIGN_OR_RETURN(room.disk, ReserveDisk(kUpload, bytes.disk, disk_beside));
  SPARSEFW_ASSIGN_OR_RETURN(Budget::Reservation own, accounts_.Reserve(tenant, bytes.host));
  room.host.Join(std::move(own));
  return room;
}

absl::Status TensorStore::CheckRoom(const RoomNeed& need) const {
  SPARSEFW_RETURN_IF_ERROR(CheckBytes(kResults, need.bytes, need.bytes));
  if (need.places <= options_.max_tensors) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_TENSORS",
                "%s must be at most max-tensors of %d tensors; they are %d", kResults,
                options_.max_tensors, need.places);
}

absl::StatusOr<TensorRoom> TensorStore::ReserveRoom(const RoomNeed& need, const Owner& owner) {
  SPARSEFW_RETURN_IF_ERROR(CheckRoom(need));
  SPARSEFW_ASSIGN_OR_RETURN(Budget::Reservation places,
                            accounts_.ReservePlaces(owner.tenant, need.places));
  SPARSEFW_ASSIGN_OR_RETURN(Budget::Reservation bytes, ReserveHost(kResults, need.bytes));
  SPARSEFW_ASSIGN_OR_RETURN(Budget::Reservation disk,
                            ReserveDisk(kResults, need.bytes, DiskUsedBeside()));
  SPARSEFW_ASSIGN_OR_RETURN(Budget::Reservation own, accounts_.Reserve(owner.tenant, need.bytes));
  bytes.Join(std::move(disk));
  bytes.Join(std::move(own));
  return TensorRoom(std::move(bytes), std::move(places));
}

TensorRoom TensorStore::KeepRoom(const RoomNeed& need, const Owner& owner) {
  Budget::Reservation bytes = budget_->Adopt(need.bytes);
  bytes.Join(disk_budget_->Adopt(need.bytes));
  bytes.Join(accounts_.Adopt(owner.tenant, need.bytes));
  return TensorRoom(std::move(bytes), accounts_.AdoptPlaces(owner.tenant, need.places));
}

absl::StatusOr<TensorRoom> TensorStore::TakeRoom(TensorRoom* room, int64_t bytes,
                                                 const Owner& owner) {
  if (room == nullptr) return ReserveRoom({bytes, 1}, owner);
  if (room->HasOne(bytes)) return room->TakeOne(bytes);
  return KeepRoom({bytes, 1}, owner);  // a result is never refused
}

}  // namespace sparsefw::server
