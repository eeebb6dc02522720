// Swap refinement between rows, where the whole matrix is one group:
// row_matching.h says which exchanges are made.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_BETWEEN_ROWS_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_BETWEEN_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/swaps/row_terms.h"
#include "core/src/cuda/swaps/swap_state.h"

namespace sparsefw::cuda {

// A weight that goes out of its row, or comes in.
struct RowMove {
  int64_t row;
  int64_t col;
};

// terms[row] for every row.
//
// Ties: of equal terms p with the lowest and q with the highest index
// Cost: one pass over W and E
template <typename Real>
CudaError LaunchRowTerms(const SwapState<Real>& state, RowTerms* terms, cudaStream_t stream);

// Makes the moves. terms[i]: the new ones of the row of moves[i], which has to be
// refined again. moves [count], on the device; no row twice.
//
// Cost: one block a move; reads a row of G, reads and writes one of E
template <typename Real>
CudaError LaunchRowMoves(const SwapState<Real>& state, const RowMove* moves, int64_t count,
                         RowTerms* terms, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_BETWEEN_ROWS_H_
