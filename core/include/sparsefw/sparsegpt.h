// SparseGPT: prunes column by column and lets the columns to the right make
// up for what is lost. Its result is a mask and new weights.
//
//   H = G + damping * mean(diag G) * I,    H^-1 = U^T U,  U upper triangular
//   score of a weight          S_ij = |w_ij| / U_jj
//   a pruned weight's error    e = w_ij / U_jj;  w_ij := 0,
//                              w_ik := w_ik - e U_jk for every k > j
//
// Source: Frantar and Alistarh 2023, Algorithm 1, and its authors' published
// code. Columns are taken in blocks from left to right. At the start of a block
// the pruned weights of the whole block are chosen from its current weights
// (n:m: those of a group at the start of the group); the errors of a block
// reach the columns right of it in one product.
//
// Deviations from the published code:
//   (1) counts are exact, where it prunes every score up to a threshold, one
//       and all ties more than asked. A block that ends before column c leaves
//       floor(rows*c*sparsity) weights pruned up to there (unstructured), or
//       floor(c*sparsity) of every row (per-row, a pattern it does not have);
//       as there, no block is much sparser than another
//   (2) of equal scores the one of the lowest row-major index is pruned first;
//       there the order is unspecified for n:m
//   (3) H is G, there (2/N) G with N the number of calibration sequences. A
//       dead input (G_jj = 0) gets the mean of the other inputs' diagonal,
//       there 1, which makes its damping depend on the scale of G and N.
//       Without dead inputs both cancel out
//   (4) where H is not positive definite the damping is raised, 10 times a
//       step up to 1, and reported; there the run fails (or, in ports of it,
//       goes on with the identity for H^-1)
//   (5) U is the inverse of the upper triangular R with H = R R^T, there the
//       Cholesky factor of the inverse of H: the same matrix for half of the
//       work, and a second factorisation that could fail less. A pivot counts
//       as positive from cols * 2^-52 of its diagonal on
//   (6) |w|/U_jj orders the weights as its square does, which it uses
//   (7) float64 throughout, there float32; the new weights are rounded to
//       float32, then to the dtype of W
//   (8) a block is shortened to whole groups of n:m; there its width must be a
//       multiple of the group
//
// A dead input's weights become 0 before anything else, as in the published
// code. Where the pattern keeps one all the same, the mask says so and the
// weight is 0.
#ifndef SPARSEFW_SPARSEGPT_H_
#define SPARSEFW_SPARSEGPT_H_

#include <cstdint>

#include "sparsefw/pattern.h"

namespace sparsefw {

struct SparseGptOptions {
  // [0, 1]: multiple of the mean diagonal of G that is added to its diagonal.
  // Raised where the factorisation fails: 0 to 0.01, then 10 times a step, at most 1.
  double damping = 0.01;
  // >= 1: columns of a block. Decides which weights compete with each other
  // (unstructured, per-row), so another width is another mask.
  int64_t block = 128;
};

// Upper estimate of the bytes that Solve with SparseGPT holds beside the
// caller's W and G, its result included: W, G and the errors of a block in
// float64, and what it compares with.
int64_t SparseGptBytes(int64_t rows, int64_t cols, const Pattern& pattern,
                       const SparseGptOptions& options);

}  // namespace sparsefw

#endif  // SPARSEFW_SPARSEGPT_H_
