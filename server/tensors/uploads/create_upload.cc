// The store's creation of uploads: admission and idempotency.
#include <utility>

#include "absl/strings/str_format.h"
#include "server/tensors/random_id.h"
#include "server/tensors/spec.h"
#include "server/tensors/store/spooled_tensor_store.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

absl::Status TooLarge(std::string_view what, int64_t bytes, std::string_view limit_name,
                      int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "%s must be at most %s of %d bytes; got %d bytes", what, limit_name, limit, bytes)),
      "TENSOR_TOO_LARGE", {{"max_bytes", absl::StrFormat("%d", limit)}});
}

}  // namespace

UploadRoom RoomOf(const std::variant<TensorSpec, GramSpec>& spec, bool resumable) {
  if (const auto* tensor = std::get_if<TensorSpec>(&spec)) {
    return {ByteSize(*tensor), ByteSize(*tensor)};
  }
  const auto& gram = std::get<GramSpec>(spec);
  // The saved state, and the one that follows it.
  const int64_t states = resumable ? 2 * GramStateBytes(gram.d_in) : 0;
  return {*GramHostBytes(gram), ByteSize(ResultSpec(gram, 0)) + states};  // by ValidateSpec
}

struct SpooledTensorStore::Request {
  std::string_view id;
  RequestBody body;
  UploadLife life = UploadLife::kResumable;
  int64_t tensor_bytes = 0;
};

absl::StatusOr<SpooledTensorStore::Created> SpooledTensorStore::CreateUpload(
    const TensorSpec& spec, std::string_view request_id, const Owner& owner, UploadLife life) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  if (spec.kind == TensorKind::kPrunedWeight) {
    return Invalid("SPEC_INVALID",
                   "kind of an upload must be WEIGHT, GRAM, SALIENCY or MASK; got "
                   "PRUNED_WEIGHT, which only the server makes");
  }
  return CreateAny(Request{request_id, {spec, owner}, life, ByteSize(spec)});
}

absl::StatusOr<SpooledTensorStore::Created> SpooledTensorStore::CreateGramUpload(
    const GramSpec& spec, std::string_view request_id, const Owner& owner, UploadLife life) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  return CreateAny(Request{request_id, {spec, owner}, life, ByteSize(ResultSpec(spec, 0))});
}

absl::StatusOr<SpooledTensorStore::Created> SpooledTensorStore::CreateAny(const Request& request) {
  while (true) {
    SPARSEFW_ASSIGN_OR_RETURN(auto found, FindOrAdd(request));
    if (auto* tensor = std::get_if<TensorInfo>(&found)) return *std::move(tensor);
    Upload& upload = *std::get<std::shared_ptr<Upload>>(found);
    SPARSEFW_RETURN_IF_ERROR(upload.Prepare());
    absl::StatusOr<UploadInfo> info = upload.Info();
    if (info.ok()) return *std::move(info);
    // Somebody with the same request id ended it in between: look again.
    if (!absl::IsNotFound(info.status())) return std::move(info).status();
  }
}

absl::StatusOr<std::variant<std::shared_ptr<Upload>, TensorInfo>> SpooledTensorStore::FindOrAdd(
    const Request& request) {
  SPARSEFW_ASSIGN_OR_RETURN(std::string id, RandomId());
  MutexLock lock(mutex_);
  const RequestIndex::Entry* entry =
      request.id.empty() ? nullptr : requests_.Find(request.body.owner.tenant, request.id);
  if (entry != nullptr) {
    if (entry->body != request.body) {
      return Invalid("REQUEST_ID_REUSED",
                     "request_id must be new for a new spec or owner; got \"%s\" again",
                     Printable(request.id));
    }
    if (const auto upload = uploads_.find(entry->id); upload != uploads_.end()) {
      return upload->second;
    }
    return tensors_.Find(entry->id)->Info();  // an entry belongs to the one or to the other
  }
  if (request.tensor_bytes > options_.max_tensor_bytes) {
    return TooLarge("a tensor", request.tensor_bytes, "max_tensor_bytes",
                    options_.max_tensor_bytes);
  }
  SPARSEFW_RETURN_IF_ERROR(CheckRoomForOne());
  const bool recorded = catalog_.durable() && request.life == UploadLife::kResumable;
  const UploadRoom bytes = RoomOf(request.body.spec, recorded);
  ContentRoom room{id, spool_, {}, {}, catalog_.durable(), options_.commit_interval_bytes};
  SPARSEFW_ASSIGN_OR_RETURN(room.host, ReserveHost(kWhatIsMade, bytes.host));
  SPARSEFW_ASSIGN_OR_RETURN(room.disk, ReserveDisk(kWhatIsMade, bytes.disk));
  const std::string& tenant = request.body.owner.tenant;
  SPARSEFW_ASSIGN_OR_RETURN(ByteBudget::Reservation own, accounts_.Reserve(tenant, bytes.host));
  room.host.Join(std::move(own));
  SPARSEFW_RETURN_IF_ERROR(accounts_.OpenUpload(tenant));
  Origin origin;
  origin.id = id;
  origin.owner = request.body.owner;
  origin.request_id = std::string(request.id);
  origin.from_upload = true;
  origin.transient = request.life == UploadLife::kJob;
  if (const auto* gram = std::get_if<GramSpec>(&request.body.spec)) origin.gram = *gram;
  Upload::Keeper* const self = this;  // a private base: make_shared could not convert
  auto upload =
      std::make_shared<Upload>(std::move(origin), MakeContent(request.body.spec, std::move(room)),
                               Now(), options_.upload_idle_ttl, recorded, self);
  requests_.Insert(request.id, request.body, id);
  uploads_.emplace(std::move(id), upload);
  return upload;
}

std::unique_ptr<UploadContent> SpooledTensorStore::MakeContent(
    const std::variant<TensorSpec, GramSpec>& spec, ContentRoom room) const {
  if (const auto* gram = std::get_if<GramSpec>(&spec)) {
    return MakeGramContent(*gram, std::move(room), options_.gram_backend, options_.gram_threads);
  }
  return MakeTensorContent(std::get<TensorSpec>(spec), std::move(room));
}

absl::Status SpooledTensorStore::CheckRoomForOne() const {
  const auto entries = static_cast<int64_t>(uploads_.size() + tensors_.size());
  if (entries < options_.max_entries) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "tensors and uploads must be at most %d; there are %d", options_.max_entries, entries)),
      "TOO_MANY_TENSORS", {{"retry_delay_ms", kRetryDelayMs}});
}

absl::StatusOr<ByteBudget::Reservation> SpooledTensorStore::Reserve(std::string_view what,
                                                                    int64_t bytes,
                                                                    const Owner& owner,
                                                                    bool accepted) {
  SPARSEFW_ASSIGN_OR_RETURN(ByteBudget::Reservation all, ReserveHost(what, bytes));
  SPARSEFW_ASSIGN_OR_RETURN(ByteBudget::Reservation disk, ReserveDisk(what, bytes));
  all.Join(std::move(disk));
  if (accepted) {
    all.Join(accounts_.Adopt(owner.tenant, bytes));
    return all;
  }
  SPARSEFW_ASSIGN_OR_RETURN(ByteBudget::Reservation own, accounts_.Reserve(owner.tenant, bytes));
  all.Join(std::move(own));
  return all;
}

absl::StatusOr<ByteBudget::Reservation> SpooledTensorStore::ReserveHost(std::string_view what,
                                                                        int64_t bytes) {
  if (bytes > budget_->limit()) {
    return TooLarge(what, bytes, "budget_bytes", budget_->limit());
  }
  auto reservation = budget_->TryReserve(bytes);
  if (reservation) return *std::move(reservation);
  return WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                        "%d bytes must be free in the memory budget for %s; %d of %d are in use",
                        bytes, what, budget_->used(), budget_->limit())),
                    "HOST_MEMORY", {{"retry_delay_ms", kRetryDelayMs}});
}

absl::StatusOr<ByteBudget::Reservation> SpooledTensorStore::ReserveDisk(std::string_view what,
                                                                        int64_t bytes) {
  if (bytes > disk_budget_->limit()) {
    return TooLarge(what, bytes, "disk_budget_bytes", disk_budget_->limit());
  }
  auto reservation = disk_budget_->TryReserve(bytes);
  if (reservation) return *std::move(reservation);
  return WithReason(absl::ResourceExhaustedError(absl::StrFormat(
                        "%d bytes must be free in the disk budget for %s; %d of %d are in use",
                        bytes, what, disk_budget_->used(), disk_budget_->limit())),
                    "DISK_BUDGET", {{"retry_delay_ms", kRetryDelayMs}});
}

}  // namespace sparsefw::server
