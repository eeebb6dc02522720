// Gram accumulation: G = X X^T summed over chunks of activations.
//
//   G += C^T C   for every chunk C [tokens, d_in]
//
// Products of blocks of tokens are formed in fp32 (or better), their sum in
// float64, so that 10^6 tokens lose nothing that matters. Products below 10^-38
// count as 0. Symmetric by construction. Not scaled: SparseGPT's H is (2/N) G.
#ifndef SPARSEFW_GRAM_H_
#define SPARSEFW_GRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/matrix.h"

namespace sparsefw {

// Tokens whose product is formed at once, whatever the chunks: adding it to the
// sum costs as much as the products of some 100 tokens.
inline constexpr int64_t kGramBlockTokens = 1024;

// Where the state of an accumulation goes to and comes from: called with spans
// of any size, in order. An error ends the transfer.
using GramStateSink = absl::FunctionRef<absl::Status(std::span<const std::byte>)>;
using GramStateSource = absl::FunctionRef<absl::Status(std::span<std::byte>)>;

// Bytes of a state, at most: half of the sums, and the tokens that wait.
inline constexpr int64_t kGramStateHeaderBytes = 40;
inline int64_t GramStateBytes(int64_t d_in) {
  return kGramStateHeaderBytes + 4 * d_in * (d_in + 1) + 4 * kGramBlockTokens * d_in;
}

// Not thread-safe. Memory: 8*d_in^2 bytes, and 4*kGramBlockTokens*d_in for
// tokens that wait for a full block.
class GramAccumulator {
 public:
  virtual ~GramAccumulator() = default;

  // Shapes:  chunk [tokens, d_in], F32, F16 or BF16; any number of tokens
  // Numeric: values are validated first; an error leaves the sum as it was.
  // Cost:    tokens * d_in^2 multiply-adds (half of a full product)
  // Errors:  InvalidArgument  cols != d_in (SHAPE_MISMATCH), dtype
  //          (DTYPE_UNSUPPORTED), at [token, column], tokens counted over all
  //          chunks, NaN, infinity, or a value of 2^58 or more: sums of 1024 of
  //          their squares come near the largest float32 (NON_FINITE)
  virtual absl::Status Add(ConstMatrixView chunk) = 0;

  // Adds another partial sum over `token_count` tokens: G = sum over ranks.
  // Errors:  what ValidateGram says, SHAPE_MISMATCH, token_count below 0 (OPTION_INVALID)
  virtual absl::Status AddGram(ConstMatrixView gram, int64_t token_count) = 0;

  virtual int64_t d_in() const = 0;
  virtual int64_t token_count() const = 0;

  // Rows [first, first + count) of the sum so far, both triangles filled, into
  // `rows`, [count, d_in]. No memory of its own: whoever cannot hold the whole
  // takes it in blocks (64 rows and more run at full speed).
  // Errors: of the device, where the sum is on one
  virtual absl::Status CopyRows(int64_t first, int64_t count, double* rows) = 0;

  // The state after the calls so far, so that the accumulation can go on later in
  // another process. Changes nothing, unlike CopyRows, which ends the block of
  // tokens that waits: an accumulator that took over the state gives, after the same
  // further calls, the same bits as this one. Made for the same backend;
  // another one takes it over too, with the bits of a sum of two backends. The reference
  // takes none with tokens that wait.
  // Memory:  some rows
  // Errors:  those of `sink`; of the device, where the sum is on one
  virtual absl::Status SaveState(GramStateSink sink) = 0;
  // To be called once, before anything is added. After an error this must not be
  // used any more.
  // Errors:  InvalidArgument  not a state of this d_in (GRAM_STATE_INVALID); those
  //          of `source`; of the device
  virtual absl::Status RestoreState(GramStateSource source) = 0;

  // All of them. Memory: 8*d_in^2 bytes more.
  absl::StatusOr<Matrix<double>> Snapshot() {
    Matrix<double> full(d_in(), d_in());
    if (absl::Status status = CopyRows(0, d_in(), full.data()); !status.ok()) return status;
    return full;
  }
};

// A Gram matrix in the memory of a device, as it was given: one upload for all
// engines of that device, several at once too. Immutable. Made by
// Backend::UploadGram; its memory is free once its last owner has let go of it,
// on whatever thread.
class DeviceGram {
 public:
  DeviceGram(const DeviceGram&) = delete;
  DeviceGram& operator=(const DeviceGram&) = delete;
  virtual ~DeviceGram() = default;

 protected:
  DeviceGram() = default;
};

}  // namespace sparsefw

#endif  // SPARSEFW_GRAM_H_
