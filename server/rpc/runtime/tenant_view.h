// The part of the stores that exists for a tenant.
//
// A handler looks every name up through these functions. Its answer for a name of another tenant
// is exactly the answer for a name that does not exist: the lookup is the same, of a name that
// nothing has.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_TENANT_VIEW_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_TENANT_VIEW_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/runtime/rpc_context.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {

// No upload, tensor or job has this name.
inline constexpr std::string_view kInvisibleName = "-";

// False: there is such a thing, and it is another tenant's. A name that does not exist counts as
// visible: the caller looks it up and does not find it. A look changes nothing.
bool UploadVisible(TensorStore& store, std::string_view tenant,
                   std::string_view name);  // also one that became a tensor
bool TensorVisible(TensorStore& store, std::string_view tenant, std::string_view name);

// Names of other tenants' tensors, by the field of the job that held them.
using HiddenInputs = std::map<std::string, std::string, std::less<>>;
// Takes other tenants' tensors out of the spec.
HiddenInputs HideInputs(TensorStore& store, std::string_view tenant, JobSpec* spec);
// Puts the client's own name back into an error about kInvisibleName.
absl::Status WithHiddenName(const HiddenInputs& hidden, const absl::Status& status);

// Sets the shrinkage of a spec that chooses it by the tokens of its Gram matrix.
void SetShrinkage(TensorStore& store, JobSpec* spec);

namespace internal {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

template <typename Result, typename Use>
Result UseVisible(const absl::StatusOr<bool>& visible, std::string_view name,
                  absl::Status (*not_found)(std::string_view), Use use) {
  if (name.empty()) return Invalid("NAME_REQUIRED", "name must not be empty; got \"\"");
  if (!visible.ok()) return visible.status();
  if (*visible) return use(name);
  Result result = use(kInvisibleName);
  if (absl::IsNotFound(StatusOf(result))) return not_found(name);
  return result;
}

}  // namespace internal

// The result of `use`, a function of the name. Errors: InvalidArgument: no name (NAME_REQUIRED)
template <typename Use>
auto WithUpload(TensorStore& store, std::string_view tenant, std::string_view name, Use use)
    -> decltype(use(name)) {
  return internal::UseVisible<decltype(use(name))>(UploadVisible(store, tenant, name), name,
                                                   &UploadNotFound, std::move(use));
}
template <typename Use>
auto WithTensor(TensorStore& store, std::string_view tenant, std::string_view name, Use use)
    -> decltype(use(name)) {
  return internal::UseVisible<decltype(use(name))>(TensorVisible(store, tenant, name), name,
                                                   &TensorNotFound, std::move(use));
}
template <typename Use>
auto WithJob(JobManager& jobs, std::string_view tenant, std::string_view name, Use use)
    -> decltype(use(name)) {
  return internal::UseVisible<decltype(use(name))>(jobs.Has(name, tenant), name, &JobNotFound,
                                                   std::move(use));
}

// `use` is a function of the spec that refuses one with a tensor that does not exist.
template <typename Use>
auto WithInputs(TensorStore& store, std::string_view tenant, JobSpec spec, Use use)
    -> decltype(use(spec)) {
  const HiddenInputs hidden = HideInputs(store, tenant, &spec);
  SetShrinkage(store, &spec);
  decltype(use(spec)) result = use(spec);
  if (hidden.empty() || internal::StatusOf(result).ok()) return result;
  return WithHiddenName(hidden, internal::StatusOf(result));
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_TENANT_VIEW_H_
