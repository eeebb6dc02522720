// The CPU's Gram accumulator: fp32 products of blocks of tokens, summed in float64.
#ifndef SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_
#define SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/dtype.h"
#include "sparsefw/gram.h"

namespace sparsefw {

// Numeric: one block of kGramBlockTokens tokens is one fp32 product. Blocks are
//          counted from the first token on, and anew after CopyRows; where
//          chunks end does not matter. Any number of threads gives the same bits.
class CpuGramAccumulator final : public GramAccumulator {
 public:
  // threads 0: all cores.
  // Errors:  InvalidArgument    d_in below 1 (SHAPE_MISMATCH)
  //          ResourceExhausted  8*d_in^2 bytes (OUT_OF_MEMORY)
  static absl::StatusOr<std::unique_ptr<GramAccumulator>> Create(int64_t d_in, int threads);

  absl::Status Add(ConstMatrixView chunk) override;
  absl::Status AddGram(ConstMatrixView gram, int64_t token_count) override;
  int64_t d_in() const override { return sum_.cols(); }
  int64_t token_count() const override { return token_count_; }
  absl::Status CopyRows(int64_t first, int64_t count, double* rows) override;
  absl::Status SaveState(GramStateSink sink) override;
  absl::Status RestoreState(GramStateSource source) override;

 private:
  CpuGramAccumulator(int64_t d_in, int threads)
      : context_(threads), product_(d_in, context_.threads()), sum_(d_in, d_in) {}

  absl::Status AddRows(ConstMatrixView chunk);
  void AddBlock(int64_t tokens);

  const ParallelContext context_;
  SyrkF32 product_;
  Matrix<double> sum_;   // the upper triangle; the lower one stays 0
  Matrix<float> block_;  // tokens not yet summed; empty until a chunk needs it
  int64_t waiting_ = 0;  // how many those are, below kGramBlockTokens
  int64_t token_count_ = 0;
};

// Checks of the inputs of every accumulator; `tokens_before` makes the token
// of an error count over all chunks.
absl::Status ValidateChunk(ConstMatrixView chunk, int64_t d_in, int64_t tokens_before);
absl::Status ValidatePartialGram(ConstMatrixView gram, int64_t d_in, int64_t token_count);

// The form in which the state of a Gram accumulation is saved, the same for all
// accumulators:
//
//   GramStateHeader
//   for i in [0, d_in): the sums (i, j), j >= i, as float64
//   the tokens that wait for a full block, [waiting, d_in] of the header's dtype
//
// Byte order and layout are the machine's: a state is read where it was written.
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

#endif  // SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_
