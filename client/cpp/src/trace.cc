#include <cstdint>
#include <limits>

#include "absl/random/random.h"
#include "absl/strings/str_format.h"
#include "core/src/base/traceparent.h"
#include "sparsefw/client/options.h"

namespace sparsefw::client {

bool IsTraceparent(std::string_view text) { return sparsefw::IsTraceparent(text); }

std::string NewTraceparent() {
  absl::BitGen random;
  const auto draw = [&random] {
    return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1,
                                   std::numeric_limits<uint64_t>::max());
  };
  return absl::StrFormat("00-%016x%016x-%016x-00", draw(), draw(), draw());
}

}  // namespace sparsefw::client
