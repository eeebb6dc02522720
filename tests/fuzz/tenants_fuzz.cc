// The file of tenants.
#include <cmath>

#include "server/identity/tenants.h"
#include "sparsefw/reason.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using sparsefw::server::TenantLimits;

void Check(const TenantLimits& limits) {
  using sparsefw::fuzz::Require;
  for (const std::optional<int64_t>& limit :
       {limits.max_queued_jobs, limits.max_running_jobs, limits.max_tensor_bytes,
        limits.max_tensors, limits.max_uploads}) {
    Require(limit.value_or(0) >= 0, "a limit is not negative");
  }
  Require(std::isfinite(limits.weight) && limits.weight > 0, "a weight is above 0");
  Require(limits.priority_max >= -100 && limits.priority_max <= 100, "so is a priority in range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = server::TenantTable::Parse(text, "tenants");
  if (!table.ok()) {
    fuzz::Require(ReasonOf(table.status()) == "CONFIGURATION_INVALID", "a refusal has its reason");
    return 0;
  }
  for (const char* name : {"alice", "bob", "default", "a"}) {
    if (const TenantLimits* limits = table->Find(name)) Check(*limits);
  }
  return 0;
}
