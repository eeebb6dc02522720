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

// The change of the loss by each weight on its own, +infinity where it
// cannot move:
//   out = 2 w E + w^2 G_jj    kept and not locked: pruned
//   in  = -2 w E + w^2 G_jj   pruned: restored
void SwapTerms(const SwapOperands<float>& row, double* out, double* in);
void SwapTerms(const SwapOperands<double>& row, double* out, double* in);

// min over j of in_j - factor * w_j * gram_row_j.
double BestPartner(int64_t words, const double* in, const float* weights, const float* gram_row,
                   double factor);
double BestPartner(int64_t words, const double* in, const double* weights, const double* gram_row,
                   double factor);
// The largest j that attains it, `best` being what BestPartner returned for
// the same arguments.
int64_t FindPartner(int64_t words, const double* in, const float* weights, const float* gram_row,
                    double factor, double best);
int64_t FindPartner(int64_t words, const double* in, const double* weights, const double* gram_row,
                    double factor, double best);

// product += first * first_row + second * second_row
void AddTwoRows(int64_t words, double first, const float* first_row, double second,
                const float* second_row, double* product);
void AddTwoRows(int64_t words, double first, const double* first_row, double second,
                const double* second_row, double* product);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_KERNELS_H_
