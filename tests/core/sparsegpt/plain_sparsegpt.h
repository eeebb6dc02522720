// SparseGPT in obvious loops, after its authors' published code: three
// factorisations, one column at a time, every later column updated at once.
// Shares no code with the library.
#ifndef SPARSEFW_TESTS_CORE_SPARSEGPT_PLAIN_SPARSEGPT_H_
#define SPARSEFW_TESTS_CORE_SPARSEGPT_PLAIN_SPARSEGPT_H_

#include <cstdint>
#include <vector>

#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::testing {

struct PlainResult {
  std::vector<std::vector<bool>> keep;
  std::vector<std::vector<double>> weights;  // not rounded
  double damping = 0;
};

// `block` a multiple of the group of an n:m pattern.
PlainResult PlainSparseGpt(const Matrix<double>& weights, const Matrix<double>& gram,
                           const Pattern& pattern, double damping, int64_t block);

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_SPARSEGPT_PLAIN_SPARSEGPT_H_
