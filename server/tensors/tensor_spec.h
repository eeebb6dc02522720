// Kind, dtype and shape of a tensor, and the sizes that follow from them.
#ifndef SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_
#define SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "sparsefw/dtype.h"

namespace sparsefw::server {

enum class TensorKind { kWeight, kGram, kSaliency, kMask, kPrunedWeight };

struct TensorSpec {
  TensorKind kind = TensorKind::kWeight;
  DType dtype = DType::kF32;  // kBool: a packed one-bit mask, U1 on the wire
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t token_count = 0;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

struct GramSpec {
  int64_t d_in = 0;
  DType activation_dtype = DType::kF32;
  DType gram_dtype = DType::kF32;
  friend bool operator==(const GramSpec&, const GramSpec&) = default;
};

// What an upload becomes: a tensor of these bytes, or the sum over its tokens.
using UploadSpec = std::variant<TensorSpec, GramSpec>;

// Shape and dtype of a matrix that a job reads.
struct MatrixSpec {
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF32;
};

// Errors: InvalidArgument (SPEC_INVALID): kind/dtype pairing, a dimension below
// 1, a size beyond int64, a Gram that is not square, a token_count of anything else.
absl::Status ValidateSpec(const TensorSpec& spec);
absl::Status ValidateSpec(const GramSpec& spec);
// Bytes of a tensor with a valid spec. U1 rows are padded to whole bytes.
int64_t ByteSize(const TensorSpec& spec);

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

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_
