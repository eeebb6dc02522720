// The store's creation of uploads: admission and idempotency.
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/identity/random_hex.h"
#include "server/tensors/tensor_spec.h"
#include "server/tensors/tensor_store.h"
#include "server/tensors/uploads/upload.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
UploadRoom RoomOf(const UploadSpec& spec, bool resumable) {
  if (const auto* tensor = std::get_if<TensorSpec>(&spec)) {
    return {ByteSize(*tensor), ByteSize(*tensor)};
  }
  const auto& gram = std::get<GramSpec>(spec);
  // The saved state, and the one that follows it.
  const int64_t states = resumable ? 2 * GramStateBytes(gram.d_in) : 0;
  return {*GramHostBytes(gram), ByteSize(ResultSpec(gram, 0)) + states};  // by ValidateSpec
}

absl::StatusOr<TensorStore::Created> TensorStore::CreateUpload(const UploadSpec& spec,
                                                               std::string_view request_id,
                                                               const Owner& owner, UploadLife life,
                                                               std::string_view fingerprint) {
  SPARSEFW_RETURN_IF_ERROR(std::visit([](const auto& one) { return ValidateSpec(one); }, spec));
  const auto* gram = std::get_if<GramSpec>(&spec);
  const TensorSpec result = gram != nullptr ? ResultSpec(*gram, 0) : std::get<TensorSpec>(spec);
  if (result.kind == TensorKind::kPrunedWeight) {
    return Invalid("SPEC_INVALID",
                   "kind of an upload must be WEIGHT, GRAM, SALIENCY or MASK; got "
                   "PRUNED_WEIGHT, which only the server makes");
  }
  const Request request{
      request_id, {spec, owner, std::string(fingerprint)}, life, ByteSize(result)};
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

// An entry belongs to an upload or to the tensor that it has become.
absl::StatusOr<std::optional<TensorStore::Existing>> TensorStore::FindEarlier(
    const Request& request) {
  if (request.id.empty()) return std::nullopt;
  const auto found = requests_.find({request.body.owner.tenant, std::string(request.id)});
  if (found == requests_.end()) return std::nullopt;
  const auto& [earlier, id] = found->second;
  std::shared_ptr<Upload> upload = uploads_.Find(id);
  const bool open = upload != nullptr;
  // An open upload of an earlier version is a client's: a stream of our own must not write
  // into it.
  const bool same_request = earlier.fingerprint.empty()
                                ? !open || request.life == UploadLife::kResumable
                                : earlier.fingerprint == request.body.fingerprint;
  if (!same_request || earlier.spec != request.body.spec || earlier.owner != request.body.owner) {
    return Invalid("REQUEST_ID_REUSED",
                   "request_id must be new for a request with another body; got \"%s\" again",
                   Printable(request.id));
  }
  if (open) return upload;
  return tensors_.Find(id)->Info();
}

absl::StatusOr<TensorStore::Existing> TensorStore::FindOrAdd(const Request& request) {
  SPARSEFW_ASSIGN_OR_RETURN(std::string id, RandomHex(kIdBytes));
  const int64_t disk_beside = DiskUsedBeside();
  MutexLock lock(mutex_);
  SPARSEFW_ASSIGN_OR_RETURN(std::optional<Existing> earlier, FindEarlier(request));
  if (earlier.has_value()) return *std::move(earlier);
  const bool recorded = catalog_.durable() && request.life == UploadLife::kResumable;
  SPARSEFW_ASSIGN_OR_RETURN(ContentRoom room, ReserveUpload(request, id, recorded, disk_beside));
  SPARSEFW_RETURN_IF_ERROR(accounts_.OpenUpload(request.body.owner.tenant));
  absl::Cleanup undo = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {  // where memory runs out
    accounts_.CloseUpload(request.body.owner.tenant);
    requests_.erase({request.body.owner.tenant, std::string(request.id)});
  };
  Origin origin;
  origin.id = id;
  origin.owner = request.body.owner;
  origin.request_id = std::string(request.id);
  origin.fingerprint = request.body.fingerprint;
  origin.from_upload = true;
  origin.transient = request.life == UploadLife::kJob;
  if (const auto* gram = std::get_if<GramSpec>(&request.body.spec)) origin.gram = *gram;
  auto upload =
      std::make_shared<Upload>(std::move(origin), MakeContent(request.body.spec, std::move(room)),
                               ++newest_upload_, Now(), options_.upload_idle_ttl, recorded, this);
  if (!request.id.empty()) {
    requests_.emplace(std::pair(request.body.owner.tenant, request.id), Entry{request.body, id});
  }
  uploads_.Insert(upload);
  std::move(undo).Cancel();
  return upload;
}

std::unique_ptr<UploadContent> TensorStore::MakeContent(const UploadSpec& spec,
                                                        ContentRoom room) const {
  if (const auto* gram = std::get_if<GramSpec>(&spec)) {
    return MakeGramContent(*gram, std::move(room), accumulators_);
  }
  return MakeTensorContent(std::get<TensorSpec>(spec), std::move(room));
}

}  // namespace sparsefw::server
