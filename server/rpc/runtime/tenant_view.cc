#include "server/rpc/runtime/tenant_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sparsefw/options.h"

namespace sparsefw::server {
bool UploadVisible(TensorStore& store, std::string_view tenant, std::string_view name) {
  const absl::StatusOr<Owner> owner = store.OwnerOfUpload(name);
  return !owner.ok() || owner->tenant == tenant;
}

bool TensorVisible(TensorStore& store, std::string_view tenant, std::string_view name) {
  const absl::StatusOr<TensorInfo> tensor = store.GetTensor(name);
  return !tensor.ok() || tensor->owner.tenant == tenant;
}

HiddenInputs HideInputs(TensorStore& store, std::string_view tenant, JobSpec* spec) {
  HiddenInputs hidden;
  const std::pair<const char*, std::string*> inputs[] = {
      {"weight", &spec->weight},
      {"gram", &spec->gram},
      {"warm_start.saliency", &spec->warm_saliency},
      {"warm_start.mask", &spec->warm_mask}};
  for (const auto& [field, name] : inputs) {
    if (name->empty() || TensorVisible(store, tenant, *name)) continue;
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
