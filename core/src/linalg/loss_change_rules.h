// When the loss of a mask is that of another one and the change between them.
//
//   L(M') - L(M) = <D' - D, (D' + D) G>,   D = W.(1 - M)
//
// for a G that is symmetric bit for bit: one row of it for every weight that one mask keeps and the
// other does not, and no product D G.
#ifndef SPARSEFW_CORE_SRC_LINALG_LOSS_CHANGE_RULES_H_
#define SPARSEFW_CORE_SRC_LINALG_LOSS_CHANGE_RULES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "sparsefw/mask.h"

namespace sparsefw {

// Masks that differ in more of their weights have their losses computed from scratch: a
// dense product runs at many times the rate of single rows of G.
inline constexpr double kLargestDifference = 0.04;
// A float64 G that has to be scaled by more than that would take products out of range.
inline constexpr int kLargestExponentOfChanges = 400;

// The masks have the same shape.
inline bool DifferInFew(const Mask& a, const Mask& b) {
  int64_t count = 0;
  const auto first = a.bytes();
  const auto second = b.bytes();
  for (size_t i = 0; i < first.size(); ++i) {
    count += std::popcount(static_cast<uint8_t>(first[i] ^ second[i]));
  }
  const auto weights = static_cast<double>(a.rows() * a.cols());
  return static_cast<double>(count) <= kLargestDifference * weights;
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_LOSS_CHANGE_RULES_H_
