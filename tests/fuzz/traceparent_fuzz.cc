// The header `traceparent`: server and client accept the same, which one line holds.
#include <string>

#include "server/rpc/runtime/traceparent.h"
#include "sparsefw/client/options.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool accepted = server::IsTraceparent(text);
  fuzz::Require(accepted == client::IsTraceparent(text), "server and client agree");
  if (accepted) {
    fuzz::Require(text.find_first_not_of("0123456789abcdef-") == std::string_view::npos,
                  "nothing but digits is logged");
  }
  return 0;
}
