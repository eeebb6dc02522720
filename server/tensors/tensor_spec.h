// Kind, dtype and shape of a tensor. Plain data.
#ifndef SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_
#define SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_

#include <cstdint>
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

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TENSOR_SPEC_H_
