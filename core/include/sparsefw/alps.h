// ALPS: mask and weights by the alternating direction method of multipliers.
//
// Source: Meng, Behdin, Wang, Mazumder 2024, "ALPS: Improved Optimization for Highly
// Sparse One-Shot Pruning for Large Language Models", with the arithmetic of the authors'
// code. With H = G + 0.01 mean(diag G) I, s = sqrt(diag H), everything in the units that
// make its diagonal 1:
//
//   H^ = H / (s s^T),  B0 = W s,  Y = B0 H^,  D = top(|B0|),  V = 0,  rho = 0.1
//   B = (Y - V + rho D) (H^ + rho I)^-1
//   D = top(V / rho + B) by magnitude,   V += rho (B - D)
//
// top keeps, in every group of the pattern, the entries of largest magnitude. Every third
// iteration c is the number of entries in which the support of D differs from that at
// the last such check, k the number kept:
//
//   c > k/10     rho *= 1.3             c > k/200    rho *= 1.2
//   c > 0        rho *= 1.1 if rho was ever raised, else rho /= 5 and B, D, V begin again
//   c = 0        ends if rho was ever raised, else rho /= 5
//
// at most 300 iterations, and none after one from the 31st on with c < 0.0003 k. Then
// B = top(B), at most 10 conjugate-gradient steps on its support for B H^ = Y, ended when
// every row's residual is 1e-4 of where it would be at 0, and W = B / s.
//
// Deviations:
//   (1) exact counts and the tie order of this library: of equal magnitudes the lower
//       row-major index is pruned; there torch.topk decides, and unstructured counts are
//       rounded, here floored as everywhere
//   (2) per-row, a pattern it does not have
//   (3) (H^ + rho I)^-1 from a triangular factor for every rho, there from one
//       eigendecomposition: the same matrix
//   (4) the steps on the support stop by the residual on the support, there by that of all
//       columns, which hardly ever falls so far
//   (5) s without the 1e-8 that is added there, which depends on the scale of G; 1 where
//       G is all zero
//   (6) float64 throughout, there float32 but for the decomposition; the new weights are
//       rounded to float32, then to the dtype of W
#ifndef SPARSEFW_ALPS_H_
#define SPARSEFW_ALPS_H_

#include <cstdint>

namespace sparsefw {

// Upper estimate of the bytes that Solve with ALPS holds beside the caller's W and G, its
// result included.
int64_t AlpsBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw

#endif  // SPARSEFW_ALPS_H_
