#include "server/rpc/runtime/tenant_view.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sparsefw/options.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

// A name that does not exist counts as visible: the caller looks it up and does not find it.
template <typename Found>
absl::StatusOr<bool> IsVisible(std::string_view tenant, const absl::StatusOr<Found>& found) {
  if (found.ok()) return found->owner.tenant == tenant;
  if (absl::IsNotFound(found.status())) return true;
  return found.status();
}

}  // namespace

absl::StatusOr<bool> UploadVisible(TensorStore& store, std::string_view tenant,
                                   std::string_view name) {
  const absl::StatusOr<UploadInfo> upload = store.GetUpload(name);
  if (upload.ok() || !absl::IsNotFound(upload.status())) return IsVisible(tenant, upload);
  // Finish tells which tensor an upload that is no more has become.
  return IsVisible(tenant, store.Finish(name, std::nullopt));
}

absl::StatusOr<bool> TensorVisible(TensorStore& store, std::string_view tenant,
                                   std::string_view name) {
  return IsVisible(tenant, store.GetTensor(name));
}

absl::Status CheckPriority(const Authenticator& authenticator, std::string_view tenant,
                           const JobSpec& spec) {
  constexpr int kHighest = 100;  // what is above is no priority at all: JobManager says so
  const int most = authenticator.LimitsOf(tenant).priority_max;
  if (spec.priority <= most || spec.priority > kHighest) return absl::OkStatus();
  return Refuse(absl::StatusCode::kPermissionDenied, "PRIORITY_NOT_ALLOWED",
                "priority must be at most %d for tenant %s; got %d", most, tenant, spec.priority);
}

absl::StatusOr<HiddenInputs> HideInputs(TensorStore& store, std::string_view tenant,
                                        JobSpec* spec) {
  HiddenInputs hidden;
  const std::pair<const char*, std::string*> inputs[] = {
      {"weight", &spec->weight},
      {"gram", &spec->gram},
      {"warm_start.saliency", &spec->warm_saliency},
      {"warm_start.mask", &spec->warm_mask}};
  for (const auto& [field, name] : inputs) {
    if (name->empty()) continue;
    SPARSEFW_ASSIGN_OR_RETURN(const bool visible, TensorVisible(store, tenant, *name));
    if (visible) continue;
    hidden.emplace(field, std::exchange(*name, std::string(kInvisibleName)));
  }
  return hidden;
}

void SetShrinkage(TensorStore& store, JobSpec* spec) {
  if (!spec->shrinks_by_tokens || spec->gram.empty()) return;
  const absl::StatusOr<TensorInfo> gram = store.GetTensor(spec->gram);
  if (!gram.ok()) return;  // what comes next says so
  const double shrinkage = ShrinkageFor(gram->spec.cols, gram->spec.token_count);
  spec->options.shrinkage = shrinkage;
  for (SweepPoint& point : spec->sweep) point.options.shrinkage = shrinkage;
}

absl::Status WithHiddenName(const HiddenInputs& hidden, const absl::Status& status) {
  ReasonMetadata metadata = ReasonMetadataOf(status);
  const auto tensor = metadata.find("tensor");
  const auto name = hidden.find(metadata["field"]);
  if (tensor == metadata.end() || tensor->second != kInvisibleName || name == hidden.end())
    return status;
  tensor->second = name->second;
  // The message ends with the name.
  absl::string_view message = status.message();
  absl::ConsumeSuffix(&message, absl::string_view(kInvisibleName.data(), kInvisibleName.size()));
  return WithReasonText(absl::Status(status.code(), absl::StrCat(message, name->second)),
                        ReasonOf(status), metadata);
}

}  // namespace sparsefw::server
