// Sizes that follow from a spec; see tensor_spec.h for ValidateSpec and ByteSize.
#ifndef SPARSEFW_SERVER_TENSORS_SPEC_H_
#define SPARSEFW_SERVER_TENSORS_SPEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/dtype.h"

namespace sparsefw::server {

std::string_view NameOf(TensorKind kind);  // "WEIGHT"

// The dtype of a mask has no meaning.
MatrixSpec MatrixSpecOf(const TensorSpec& spec);

// The tensor that an accumulation becomes.
TensorSpec ResultSpec(const GramSpec& spec, int64_t token_count);

// Rows of a sum in float64, from `first_row` on: whether they are finite in the dtype of the
// result. Finite inputs can have a sum that is not. Errors: InvalidArgument (NON_FINITE)
absl::Status CheckGramRows(std::span<const double> rows, int64_t first_row, int64_t cols,
                           DType dtype);

// Memory of an accumulation while it runs: sums in float64, a block of tokens and the result.
// Nothing beyond int64.
std::optional<int64_t> GramHostBytes(const GramSpec& spec);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_SPEC_H_
