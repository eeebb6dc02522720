// A row's offer for exchanges with other rows.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_TERMS_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_TERMS_H_

#include <cstdint>

namespace sparsefw::cuda {

// The best of a row: what it costs to prune one kept weight, what it brings to
// restore one pruned weight. Infinite, and col -1, where there is none.
struct RowTerms {
  double out;
  double in;
  int64_t out_col;
  int64_t in_col;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_ROW_TERMS_H_
