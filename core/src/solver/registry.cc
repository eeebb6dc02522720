// The one table that knows the backends.
#include <array>
#include <string>

#include "absl/strings/str_format.h"
#include "core/src/cpu/cpu_backend.h"
#include "core/src/reference/reference_backend.h"
#include "sparsefw/backend.h"
#include "sparsefw/status_reason.h"

namespace sparsefw {

std::span<const Backend* const> Backends() {
  static const std::array<const Backend*, 2> backends = {&CpuBackend(), &ReferenceBackend()};
  return backends;
}

absl::StatusOr<const Backend*> FindBackend(std::string_view name) {
  std::string known;
  for (const Backend* backend : Backends()) {
    if (backend->name() == name) return backend;
    known += absl::StrFormat("%s%s", known.empty() ? "" : ", ", backend->name());
  }
  return WithReason(absl::NotFoundError(absl::StrFormat(
                        "there is no backend \"%s\"; this build has %s", name, known)),
                    "DEVICE_UNAVAILABLE");
}

}  // namespace sparsefw
