// The form in which the state of a Gram accumulation is saved, the same for all
// accumulators:
//
//   GramStateHeader
//   for i in [0, d_in): the sums (i, j), j >= i, as float64
//   the tokens that wait for a full block, [waiting, d_in] of the header's dtype
//
// Byte order and layout are the machine's: a state is read where it was written.
#ifndef SPARSEFW_CORE_SRC_LINALG_GRAM_STATE_H_
#define SPARSEFW_CORE_SRC_LINALG_GRAM_STATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/gram.h"

namespace sparsefw {

struct GramStateHeader {
  static constexpr uint64_t kMagic = 0x31475246'57535053;  // "SPSWFRG1"
  uint64_t magic = kMagic;
  int64_t d_in = 0;
  int64_t token_count = 0;  // with those that wait
  int64_t waiting = 0;      // below kGramBlockTokens
  int32_t dtype = 0;        // DType of the tokens that wait
  int32_t unused = 0;
};
static_assert(sizeof(GramStateHeader) == kGramStateHeaderBytes);

absl::Status WriteGramStateHeader(int64_t d_in, int64_t token_count, int64_t waiting, DType dtype,
                                  GramStateSink sink);
// Errors: InvalidArgument (GRAM_STATE_INVALID); those of `source`
absl::StatusOr<GramStateHeader> ReadGramStateHeader(int64_t d_in, GramStateSource source);

// Writes rows [first, first + count) of the sums, [count, d_in]: what lies on and right of the
// diagonal.
absl::Status WriteUpperRows(const double* rows, int64_t first, int64_t count, int64_t d_in,
                            GramStateSink sink);
// Entries left of it stay as they are.
absl::Status ReadUpperRows(double* rows, int64_t first, int64_t count, int64_t d_in,
                           GramStateSource source);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_GRAM_STATE_H_
