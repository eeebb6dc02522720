// Sizes that follow from a spec; see tensor_spec.h for ValidateSpec and ByteSize.
#ifndef SPARSEFW_SERVER_TENSORS_SPEC_H_
#define SPARSEFW_SERVER_TENSORS_SPEC_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/tensors/tensor_spec.h"
#include "sparsefw/dtype.h"

namespace sparsefw::server {

std::string_view NameOf(TensorKind kind);  // "WEIGHT"

// Nothing for U1, which is no dtype of a matrix view.
std::optional<DType> MatrixDType(TensorDType dtype);
// 0 for U1.
int64_t ElementBytes(TensorDType dtype);

// The dtype of a mask has no meaning.
MatrixSpec MatrixSpecOf(const TensorSpec& spec);

// The tensor that an accumulation becomes.
TensorSpec ResultSpec(const GramSpec& spec, int64_t token_count);

// Memory of an accumulation while it runs: sums in float64, a block of tokens
// and the result.
// Nothing beyond int64.
std::optional<int64_t> GramHostBytes(const GramSpec& spec);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_SPEC_H_
