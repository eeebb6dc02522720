// Gram accumulation on a CUDA device: float32 products of blocks of tokens, summed in float64.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_ACCUMULATOR_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_ACCUMULATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "sparsefw/gram.h"

namespace sparsefw::cuda {

// Numeric: one block of kGramBlockTokens tokens is one product with float32
//          sums, of the tokens as they are given: F16 and BF16 on tensor cores,
//          F32 without rounding to TF32. Blocks are counted from the first
//          token on, and anew after CopyRows and where the dtype changes; where
//          chunks end does not matter. The same bits at every run on the same
//          device.
// Memory:  on the device 8*d_in^2 bytes, 4*2048*d_in for products and
//          4*kGramBlockTokens*d_in for tokens: GramAccumulatorBytes
// Threads: works on a stream of its own; makes its device the current one of
//          the calling thread. Values are validated on the host.
// Errors:  InvalidArgument    d_in below 1 (SHAPE_MISMATCH)
//          ResourceExhausted  OUT_OF_MEMORY
//          what goes wrong on the device later spoils the sum: every call from
//          then on returns it
absl::StatusOr<std::unique_ptr<GramAccumulator>> CreateCudaGramAccumulator(int device,
                                                                           int64_t d_in);

// Bytes that it holds on the device at most, the workspace of its products included.
int64_t GramAccumulatorBytes(int64_t d_in);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_GRAM_ACCUMULATOR_H_
