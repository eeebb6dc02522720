// Masks in tests: written by hand, their loss the obvious way, and the best
// of all of them by trying every one.
#ifndef SPARSEFW_TESTS_TESTING_MASKS_H_
#define SPARSEFW_TESTS_TESTING_MASKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::testing {

// {"1010", "0110"}: one string a row, '1' = keep.
Mask MaskFromRows(const std::vector<std::string>& rows);
std::vector<std::string> RowsOf(const Mask& mask);

// Keeps each weight with probability 1/2.
Mask RandomMask(int64_t rows, int64_t cols, Random& random);
// `mask` with about `share` of its weights the other way; row 0 stays.
Mask Changed(const Mask& mask, double share, Random& random);

// True when every weight kept in `inner` is kept in `outer`.
bool IsSubset(const Mask& inner, const Mask& outer);

// The loss <D, D G>, D = W.(1 - M), by three nested loops in float64.
double NaiveLoss(ConstMatrixView weights, ConstMatrixView gram, const Mask& mask);

struct BestMask {
  double loss = 0;
  Mask mask;
};

// The mask of least loss among all that meet the pattern and keep `fixed`
// (may be null). rows * cols <= 20.
BestMask ExhaustiveSearch(ConstMatrixView weights, ConstMatrixView gram, const Pattern& pattern,
                          const Mask* fixed);

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_TESTING_MASKS_H_
