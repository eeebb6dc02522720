// Exact powers of two that keep products of W, W and G in the range of float32.
#ifndef SPARSEFW_CORE_SRC_LINALG_SCALE_H_
#define SPARSEFW_CORE_SRC_LINALG_SCALE_H_

#include <algorithm>
#include <cmath>

namespace sparsefw {

// They bring max|W| and max|G| near 2^32. Scores are products of two entries of
// W and one of G, so in float32 even cols = 2^17 of the largest do not
// overflow, and entries 10^30 times smaller do not vanish, whatever the units
// of the caller.
struct Scale {
  static constexpr int kTargetExponent = 32;
  static constexpr int kLargestExponent = 1000;  // of a factor that a double surely holds
  int weights_exponent = 0;                      // W is multiplied by 2^weights_exponent
  int gram_exponent = 0;

  double weights_factor() const { return std::ldexp(1.0, weights_exponent); }
  double gram_factor() const { return std::ldexp(1.0, gram_exponent); }
  // The loss of the scaled layer, in the units of the given one.
  double Unscaled(double loss) const {
    return std::ldexp(loss, -2 * weights_exponent - gram_exponent);
  }

  // The exponent for a matrix whose largest entry this is.
  static int ExponentFor(double largest) {
    return largest == 0 ? 0 : std::min(kLargestExponent, kTargetExponent - std::ilogb(largest));
  }
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_LINALG_SCALE_H_
