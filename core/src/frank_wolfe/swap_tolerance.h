// How much an exchange of two weights must lower the loss to count.
#ifndef SPARSEFW_CORE_SRC_FRANK_WOLFE_SWAP_TOLERANCE_H_
#define SPARSEFW_CORE_SRC_FRANK_WOLFE_SWAP_TOLERANCE_H_

namespace sparsefw {

// An exchange of one kept weight p and one pruned weight q of the same group
// changes the loss by
//
//   2 w_p E_p + w_p^2 G_pp - 2 w_q E_q + w_q^2 G_qq - 2 w_p w_q G_pq,  E = D(M) G
//
// the last term only where p and q are in one row. An exchange counts as one
// that lowers the loss when it lowers it by more than the tolerances of the
// rows that it touches; that of row i is
//
//   kSwapTolerance * L_i(start) + kSwapNoise * sum_j w_ij^2 G_jj
//
// L_i the row's part of the loss. The second term keeps rounding errors from
// being taken for improvements in rows whose loss is all but 0.
inline constexpr double kSwapTolerance = 1e-7;
inline constexpr double kSwapNoise = 1e-11;

// An exchange of the joint search counts when it lowers the loss of a row, with its kept weights
// solved, by more than
//
//   kJointTolerance * L*_i(start) + kSwapNoise * sum_j w_ij^2 G_jj
//
// or, where the tableau is in float32, ten times the first term.
inline constexpr double kJointTolerance = 1e-7;

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_FRANK_WOLFE_SWAP_TOLERANCE_H_
