#include <cstdint>
#include <limits>

#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client {
namespace {

// Lower-case digits, and not only zeros, which mean none.
bool IsIdentifier(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

bool IsTraceparent(std::string_view text) {
  return text.size() == 55 && text.starts_with("00-") && text[35] == '-' && text[52] == '-' &&
         IsIdentifier(text.substr(3, 32)) && IsIdentifier(text.substr(36, 16)) &&
         IsIdentifier("1" + std::string(text.substr(53)));
}

std::string NewTraceparent() {
  absl::BitGen random;
  const auto draw = [&random] {
    return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1,
                                   std::numeric_limits<uint64_t>::max());
  };
  return absl::StrFormat("00-%016x%016x-%016x-00", draw(), draw(), draw());
}

}  // namespace sparsefw::client
