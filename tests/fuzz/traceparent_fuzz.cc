// The header `traceparent`: what server and client accept, which one line holds.
#include <string_view>

#include "core/src/base/traceparent.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparsefw;  // NOLINT: one function
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (IsTraceparent(text)) {
    fuzz::Require(text.find_first_not_of("0123456789abcdef-") == std::string_view::npos,
                  "nothing but digits is logged");
  }
  return 0;
}
