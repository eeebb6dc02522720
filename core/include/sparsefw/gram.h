// Gram accumulation: G = X X^T summed over chunks of activations.
//
//   G += C^T C   for every chunk C [tokens, d_in]
//
// Products of blocks of tokens are formed in fp32 (or better), their sum in
// float64, so that 10^6 tokens lose nothing that matters. Symmetric by
// construction. Not scaled: SparseGPT's H is (2/N) G.
#ifndef SPARSEFW_GRAM_H_
#define SPARSEFW_GRAM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Tokens whose product is formed at once, whatever the chunks: adding it to the
// sum costs as much as the products of some 100 tokens.
inline constexpr int64_t kGramBlockTokens = 1024;

// Not thread-safe. Memory: 8*d_in^2 bytes, and 4*kGramBlockTokens*d_in for
// tokens that wait for a full block.
class GramAccumulator {
 public:
  virtual ~GramAccumulator() = default;

  // Shapes:  chunk [tokens, d_in], F32, F16 or BF16; any number of tokens
  // Numeric: values are validated first; an error leaves the sum as it was.
  // Cost:    tokens * d_in^2 multiply-adds (half of a full product)
  // Errors:  InvalidArgument  cols != d_in (SHAPE_MISMATCH), dtype
  //          (DTYPE_UNSUPPORTED), NaN or infinity at [token, column], tokens
  //          counted over all chunks (NON_FINITE)
  virtual absl::Status Add(ConstMatrixView chunk) = 0;

  // Adds another partial sum over `token_count` tokens: G = sum over ranks.
  // Errors:  what ValidateGram says, SHAPE_MISMATCH
  virtual absl::Status AddGram(ConstMatrixView gram, int64_t token_count) = 0;

  virtual int64_t d_in() const = 0;
  virtual int64_t token_count() const = 0;

  // Rows [first, first + count) of the sum so far, both triangles filled, into
  // `rows`, [count, d_in]. No memory of its own: whoever cannot hold the whole
  // takes it in blocks (64 rows and more run at full speed).
  // Errors: of the device, where the sum is on one
  virtual absl::Status CopyRows(int64_t first, int64_t count, double* rows) = 0;

  // All of them. Memory: 8*d_in^2 bytes more.
  absl::StatusOr<Matrix<double>> Snapshot() {
    Matrix<double> full(d_in(), d_in());
    if (absl::Status status = CopyRows(0, d_in(), full.data()); !status.ok()) return status;
    return full;
  }
};

}  // namespace sparsefw

#endif  // SPARSEFW_GRAM_H_
