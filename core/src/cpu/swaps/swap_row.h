// Swap refinement within the rows: until no exchange inside a row lowers the loss.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_

#include <cstdint>
#include <vector>

#include "core/src/cpu/swaps/swap_state.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// Sweeps over a row: for every kept p, those that cost least on their own
// first, the best of all q is exchanged for it if that lowers the loss. A sweep
// that exchanges nothing has tried every pair, or excluded it by the bound
//
//   out_p + min_q in_q - 2 |w_p| reach_p max_q |w_q| sqrt(G_qq) >= -tolerance
//
// and so proves that no exchange within the row improves. Rows of n:m groups
// are swept group by group, each tried pair by pair.
//
// Ties: of equal changes the one that keeps the higher index, in p and in q.
// Memory: two rows of float64 and an index list.
// Cost: a sweep costs (kept, movable) * cols multiply-adds, in float64.
template <typename Real>
class RowSwapper {
 public:
  RowSwapper(SwapState<Real>& state, SwapBudget& budget);

  // Ends early only where the budget is spent.
  SwapTally Refine(int64_t row);

 private:
  bool SweepRow(int64_t row, SwapTally& tally);
  bool SweepGroups(int64_t row, SwapTally& tally);
  void UpdateTerms(int64_t row);
  void CollectCandidates(int64_t row);
  bool MayImprove(int64_t row, int64_t p) const;
  bool SwapBestOfGroup(int64_t row, int64_t first, SwapTally& tally);

  SwapState<Real>& state_;
  SwapBudget& budget_;
  Matrix<double> out_;
  Matrix<double> in_;
  std::vector<int64_t> candidates_;
  double least_in_ = 0;      // min_q in_q
  double largest_norm_ = 0;  // max_q |w_q| sqrt(G_qq), at least
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_ROW_H_
