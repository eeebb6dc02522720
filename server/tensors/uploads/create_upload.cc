// The store's creation of uploads: admission and idempotency.
#include <utility>

#include "absl/strings/str_format.h"
#include "server/tensors/random_id.h"
#include "server/tensors/spec.h"
#include "server/tensors/store/spooled_tensor_store.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// Memory is freed when a job or an upload ends, which takes seconds.
constexpr char kRetryDelayMs[] = "1000";

absl::Status TooLarge(std::string_view what, int64_t bytes, std::string_view limit_name,
                      int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrFormat(
          "%s must be at most %s of %d bytes; got %d bytes", what, limit_name, limit, bytes)),
      "TENSOR_TOO_LARGE", {{"max_bytes", absl::StrFormat("%d", limit)}});
}

}  // namespace

struct SpooledTensorStore::Request {
  std::string_view id;
  RequestBody body;
  int64_t tensor_bytes = 0;
  int64_t host_bytes = 0;  // to reserve
};

absl::StatusOr<SpooledTensorStore::Created> SpooledTensorStore::CreateUpload(
    const TensorSpec& spec, std::string_view request_id, std::string_view owner) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  if (spec.kind == TensorKind::kPrunedWeight) {
    return Invalid("SPEC_INVALID",
                   "kind of an upload must be WEIGHT, GRAM, SALIENCY or MASK; got "
                   "PRUNED_WEIGHT, which only the server makes");
  }
  const int64_t bytes = ByteSize(spec);
  return CreateAny(Request{request_id, {spec, std::string(owner)}, bytes, bytes});
}

absl::StatusOr<SpooledTensorStore::Created> SpooledTensorStore::CreateGramUpload(
    const GramSpec& spec, std::string_view request_id, std::string_view owner) {
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(spec));
  return CreateAny(Request{request_id,
                           {spec, std::string(owner)},
                           ByteSize(ResultSpec(spec, 0)),
                           *GramHostBytes(spec)});  // by ValidateSpec
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
  const RequestIndex::Entry* entry = request.id.empty() ? nullptr : requests_.Find(request.id);
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
  SPARSEFW_ASSIGN_OR_RETURN(ByteBudget::Reservation reservation,
                            Reserve(kWhatIsMade, request.host_bytes));
  Origin origin{id, request.body.owner, std::string(request.id), true};
  Upload::Owner* const self = this;  // a private base: make_shared could not convert
  auto upload =
      std::make_shared<Upload>(std::move(origin), MakeContent(request, id, std::move(reservation)),
                               options_.upload_idle_ttl, self);
  requests_.Insert(request.id, request.body, id);
  uploads_.emplace(std::move(id), upload);
  return upload;
}

std::unique_ptr<UploadContent> SpooledTensorStore::MakeContent(
    const Request& request, const std::string& id, ByteBudget::Reservation reservation) const {
  if (const auto* gram = std::get_if<GramSpec>(&request.body.spec)) {
    return MakeGramContent(*gram, id, spool_, std::move(reservation), options_.gram_backend,
                           options_.gram_threads);
  }
  return MakeTensorContent(std::get<TensorSpec>(request.body.spec), id, spool_,
                           std::move(reservation));
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

}  // namespace sparsefw::server
