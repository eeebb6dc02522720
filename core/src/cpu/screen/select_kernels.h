// The selection of a row's vertex among the scores of its active columns: screen_kernels.h has
// the rules of these kernels.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SELECT_KERNELS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SELECT_KERNELS_H_

#include <cstdint>

namespace sparsefw::cpu {

// Where the threshold of a selection was, and how far apart scores lay there.
template <typename Real>
struct ThresholdGuess {
  Real threshold = 0;
  Real spacing = 0;
};
// The vertex of the `wanted` >= 0 largest positive scores, of equal ones the later. Returns the
// least of them, 0 where no other is positive. Exact whatever the guess, which is brought
// up to date.
float SelectLargest(const float* scores, int64_t groups, int64_t wanted,
                    ThresholdGuess<float>& guess, uint64_t* vertex);
double SelectLargest(const double* scores, int64_t groups, int64_t wanted,
                     ThresholdGuess<double>& guess, uint64_t* vertex);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SELECT_KERNELS_H_
