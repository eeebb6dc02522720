// The launches of swap refinement and the device memory they work on: the mask that is being
// improved and E = D G of it.
//
// Within rows, until no exchange inside a row lowers the loss:
//
// Wide groups (LaunchSweepRows): sweeps over a group of a row. For every kept p, those that cost
// least on their own first, the best of all q is exchanged for it if that lowers the loss. A sweep
// that exchanges nothing has tried every pair, or excluded it by the bound of MayImprove, and so
// proves that no exchange within the group improves; a row is done when all of its groups are
// proven since its last exchange.
//
// Narrow groups (LaunchSwapGroups): of all pairs of all groups of a row, the
// best one, exchange after exchange.
//
// Either takes at most `steps` steps in a row: a step looks at every column of
// a group, or of the row, a few times.
//
// Between rows (LaunchRowTerms, then LaunchMatchRows and LaunchRowMoves in turn), where the whole
// matrix is one group: an exchange of a p in one row and a q in another has no common term, and
// exchanges that share no row do not change each other's terms. So a round makes many at once.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_KERNELS_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/swaps/swap_terms.h"

namespace sparsefw::cuda {

// How far the exchanges within a row have come: launches are short, and the next one goes on from
// here. All zero at first, and where a row was changed from outside.
struct RowProgress {
  int64_t swaps;
  double loss_change;
  int64_t first;   // column where the group begins that is being swept
  int64_t proven;  // columns of groups swept in vain since the last exchange
  int32_t moved;   // this sweep of the group has exchanged something
  int32_t done;    // no exchange within the row lowers the loss
  int32_t listed;  // weights in the order of the sweep that is under way; 0: none is
  int32_t place;   // those of them that were looked at
};

// Views of device memory; no ownership. E is in float64 although W and G may
// be in float32: the changes that decide near the end are 10^-7 of a row's loss.
template <typename Real>
struct SwapState {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  int64_t group_cols = 0;
  const Real* weights = nullptr;    // [rows, stride]
  const Real* gram = nullptr;       // [cols, stride]
  double* diagonal = nullptr;       // [stride]: G_jj
  double* reach = nullptr;          // [stride]: max over j != p of |G_pj| / sqrt(G_jj)
  double* tolerance = nullptr;      // [rows]: core/src/frank_wolfe/swap_tolerance.h
  const BitWord* locked = nullptr;  // [rows, stride / 32]: kept weights that must stay; or null
  BitWord* kept = nullptr;          // [rows, stride / 32]
  int32_t* order = nullptr;         // [rows, stride]: columns in the order of a sweep
  int32_t* scratch = nullptr;       // [rows, stride]
  double* product = nullptr;        // [rows, stride]: E
  RowProgress* progress = nullptr;  // [rows]
  // Dynamic shared memory that E of a row is worked on in; 0: in place.
  size_t shared_bytes = 0;
};

// SwapState::shared_bytes on a device that gives a block at most `limit` bytes
// of shared memory, static arrays included.
inline size_t SharedProductBytes(int64_t stride, size_t limit) {
  constexpr size_t kStatic = 20 * 1024;  // of the reductions, at most
  const auto bytes = static_cast<size_t>(stride) * sizeof(double);
  return bytes + kStatic <= limit ? bytes : 0;
}

// diagonal and reach, which is infinite where a zero divides: it bounds what a partner of p can
// gain by being in the same row, G positive semi-definite or not.
template <typename Real>
CudaError LaunchDiagonal(const SwapState<Real>& state, cudaStream_t stream);

// tolerance from E of the start.
template <typename Real>
CudaError LaunchTolerance(const SwapState<Real>& state, cudaStream_t stream);

// Groups of at most this many columns are narrow.
inline constexpr int64_t kNarrowGroup = 64;

// For the rows that are not done. *active: how many of them are not done
// afterwards, added to what it holds.
//
// Ties: of equal changes the exchange that keeps the higher index
// Cost: one block a row; a step reads one row of G, an exchange two more.
//       E of a row is in shared memory where it fits.
template <typename Real>
CudaError LaunchSweepRows(const SwapState<Real>& state, int steps, int* active,
                          cudaStream_t stream);

// Cost: one block a row; a step reads group_cols entries of G for every column.
template <typename Real>
CudaError LaunchSwapGroups(const SwapState<Real>& state, int steps, int* active,
                           cudaStream_t stream);

// terms[row] for every row.
//
// Ties: of equal terms p with the lowest and q with the highest index
// Cost: one pass over W and E
template <typename Real>
CudaError LaunchRowTerms(const SwapState<Real>& state, RowTerms* terms, cudaStream_t stream);

// A weight that goes out of its row, or comes in.
struct RowMove {
  int64_t row;
  int64_t col;
};

// What the exchanges between rows have done; zeros at first.
struct RowExchanges {
  int64_t swaps;
  double loss_change;
  int64_t moves;  // of this round, two an exchange; 0: no exchange between rows lowers the loss
};

// An exchange that lowers the loss by less than this part of what the best one
// does waits for a later round: rows that have more to give or to take come first.
// Matched on the host, the preset `balanced` took 5.9 s on an H100 with a quarter (4096 x 4096
// unstructured, loss 0.0812 %) and 4.0 s with a tenth (0.0813 %; docs/benchmarks/gpu-log.md).
inline constexpr double kLeastOfBest = 0.1;

// A round makes the best exchange, and at most one more for the rows of every thread.
inline constexpr int64_t kMostMoves = 2 * (1 + 256);

// Which exchanges a round makes: the best of all between two rows; then the cheapest p with the
// most useful q, the second with the second, and so on, of the rows that are left. Each row
// once. Each exchange lowers the loss by more than the tolerances of its rows, and by kLeastOfBest
// of the first. moves [kMostMoves]. `exchanges` counts them as made.
//
// Ties: of equal changes the one that keeps the higher row
// Cost: one block; reads terms and tolerances twice, three times if one row has the best
//       term on both sides
CudaError LaunchMatchRows(int64_t rows, const double* tolerance, const RowTerms* terms,
                          RowMove* moves, RowExchanges* exchanges, cudaStream_t stream);

// Makes the moves of the round. Their rows have new terms, and have to be refined again.
//
// Cost: one block a move; reads a row of G, reads and writes one of E
template <typename Real>
CudaError LaunchRowMoves(const SwapState<Real>& state, const RowMove* moves,
                         const RowExchanges* exchanges, RowTerms* terms, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_KERNELS_H_
