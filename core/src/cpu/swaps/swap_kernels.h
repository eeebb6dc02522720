// The vectorised inner loops of swap refinement. Layout as in kernels.h: rows
// of `words * 64` elements, 64-byte aligned, sets of columns as words of bits.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_KERNELS_H_

#include <cstdint>

namespace sparsefw::cpu {

// One row: what pruning or restoring a weight depends on.
template <typename Real>
struct SwapOperands {
  int64_t words = 0;
  const Real* weights = nullptr;
  const double* diagonal = nullptr;   // G_jj
  const uint64_t* kept = nullptr;     // 0 beyond the last column
  const uint64_t* locked = nullptr;   // kept ones that must stay
  const uint64_t* columns = nullptr;  // 1 for every column of the matrix
  double* product = nullptr;          // E = D G
};

template <typename Real>
struct SwapKernels {
  // The change of the loss by each weight on its own, +infinity where it
  // cannot move:
  //   out = 2 w E + w^2 G_jj    kept and not locked: pruned
  //   in  = -2 w E + w^2 G_jj   pruned: restored
  void (*swap_terms)(const SwapOperands<Real>& row, double* out, double* in);

  // min over j of in_j - factor * w_j * gram_row_j.
  double (*best_partner)(int64_t words, const double* in, const Real* weights, const Real* gram_row,
                         double factor);
  // The largest j that attains it, `best` being what best_partner returned for
  // the same arguments.
  int64_t (*find_partner)(int64_t words, const double* in, const Real* weights,
                          const Real* gram_row, double factor, double best);

  // product += first * first_row + second * second_row
  void (*add_two_rows)(int64_t words, double first, const Real* first_row, double second,
                       const Real* second_row, double* product);
};
template <typename Real>
const SwapKernels<Real>& KernelsOfSwaps();

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_KERNELS_H_
