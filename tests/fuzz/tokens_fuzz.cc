// The file of tokens.

#include "server/identity/tenants.h"
#include "server/identity/tokens.h"
#include "sparsefw/reason.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = server::TokenTable::Parse(text, "tokens");
  if (!table.ok()) {
    fuzz::Require(ReasonOf(table.status()) == "CONFIGURATION_INVALID", "a refusal has its reason");
    for (const char c : table.status().message()) {
      fuzz::Require(static_cast<unsigned char>(c) < 0x80, "a message shows nothing of the file");
    }
    return 0;
  }
  for (const server::TokenTable::Entry& entry : table->entries()) {
    fuzz::Require(server::IsTenantName(entry.tenant), "every tenant has a name");
    const server::TokenTable::Entry* found = table->Find(entry.digest);
    fuzz::Require(found != nullptr && found->tenant == entry.tenant, "every token is found");
  }
  fuzz::Require(table->Find(server::Sha256({})) == nullptr || !table->entries().empty(),
                "an empty table finds nothing");
  return 0;
}
