// Exchanges between rows that can be made at the same time, where the whole
// matrix is one group.
//
// An exchange of a p in one row and a q in another has no common term, and
// exchanges that share no row do not change each other's terms. So the rows
// with the cheapest p are matched with those that have the most useful q, each
// row once; the loss changes by the sum of all.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_MATCHING_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_MATCHING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/src/cuda/swaps/swap_terms.h"

namespace sparsefw::cuda {

struct RowMatch {
  int64_t p_row = 0;
  int64_t q_row = 0;
  friend bool operator==(const RowMatch&, const RowMatch&) = default;
};

// An exchange that lowers the loss by less than this part of what the best one
// does waits for a later round: rows that have more to give or to take come first.
// The preset `balanced` on an H100, 4096 x 4096 unstructured: 5.9 s and a loss of 0.0812 % with a
// quarter, 4.0 s and 0.0813 % with a tenth (docs/benchmarks/gpu-log.md).
inline constexpr double kLeastOfBest = 0.1;

// The terms of all rows, of which a round changes few.
class RowMatching {
 public:
  // tolerance [rows]. Without terms a row offers nothing.
  explicit RowMatching(std::vector<double> tolerance);

  void SetTerms(int64_t row, const RowTerms& terms);
  const RowTerms& terms(int64_t row) const { return terms_[static_cast<size_t>(row)]; }

  // The first match is the best of all exchanges between two rows; then the rows
  // left in the order of their terms. Each lowers the loss by more than the
  // tolerances of its rows and kLeastOfBest of the first; none: no exchange
  // between rows does.
  //
  // Ties: of equal changes the one that keeps the higher row
  // Cost: O(rows + candidates log matches) on average; candidates are the rows that may gain at
  // least kLeastOfBest of the first exchange
  std::vector<RowMatch> Match() const;

 private:
  std::vector<double> tolerance_;
  std::vector<RowTerms> terms_;
  // What a row's term and its tolerance add to the loss; infinite where it has none.
  std::vector<double> out_;
  std::vector<double> in_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_MATCHING_H_
