// The CPU's Gram accumulator: fp32 products of blocks of tokens, summed in float64.
#ifndef SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_
#define SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/src/linalg/blas.h"
#include "core/src/parallel/parallel_context.h"
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

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_GRAM_ACCUMULATOR_H_
