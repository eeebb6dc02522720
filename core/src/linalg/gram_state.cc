#include "core/src/linalg/gram_state.h"

#include <cstddef>
#include <span>

#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

bool IsActivationDType(int32_t dtype) {
  return dtype == static_cast<int32_t>(DType::kF32) || dtype == static_cast<int32_t>(DType::kF16) ||
         dtype == static_cast<int32_t>(DType::kBF16);
}

}  // namespace

absl::Status WriteGramStateHeader(int64_t d_in, int64_t token_count, int64_t waiting, DType dtype,
                                  GramStateSink sink) {
  const GramStateHeader header = {.d_in = d_in,
                                  .token_count = token_count,
                                  .waiting = waiting,
                                  .dtype = static_cast<int32_t>(dtype)};
  return sink(std::as_bytes(std::span(&header, 1)));
}

absl::StatusOr<GramStateHeader> ReadGramStateHeader(int64_t d_in, GramStateSource source) {
  GramStateHeader header;
  SPARSEFW_RETURN_IF_ERROR(source(std::as_writable_bytes(std::span(&header, 1))));
  const bool valid = header.magic == GramStateHeader::kMagic && header.d_in == d_in &&
                     header.waiting >= 0 && header.waiting < kGramBlockTokens &&
                     header.token_count >= header.waiting && IsActivationDType(header.dtype);
  if (valid) return header;
  return Invalid("GRAM_STATE_INVALID",
                 "the state of a Gram accumulation must be one of d_in=%d; got %s", d_in,
                 header.magic == GramStateHeader::kMagic ? "another one" : "something else");
}

absl::Status WriteUpperRows(const double* rows, int64_t first, int64_t count, int64_t d_in,
                            GramStateSink sink) {
  for (int64_t i = 0; i < count; ++i) {
    const std::span<const double> upper(rows + i * d_in + first + i,
                                        static_cast<size_t>(d_in - first - i));
    SPARSEFW_RETURN_IF_ERROR(sink(std::as_bytes(upper)));
  }
  return absl::OkStatus();
}

absl::Status ReadUpperRows(double* rows, int64_t first, int64_t count, int64_t d_in,
                           GramStateSource source) {
  for (int64_t i = 0; i < count; ++i) {
    const std::span<double> upper(rows + i * d_in + first + i,
                                  static_cast<size_t>(d_in - first - i));
    SPARSEFW_RETURN_IF_ERROR(source(std::as_writable_bytes(upper)));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw
