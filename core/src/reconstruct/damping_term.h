// The damping of a Gram matrix's diagonal, the same in every engine.
#ifndef SPARSEFW_CORE_SRC_RECONSTRUCT_DAMPING_TERM_H_
#define SPARSEFW_CORE_SRC_RECONSTRUCT_DAMPING_TERM_H_

#include <numeric>
#include <vector>

namespace sparsefw {

// damping * mean of the diagonal, summed in float64 from the first column on.
template <typename Real>
Real DampingTerm(const std::vector<Real>& diagonal, double damping) {
  const double sum = std::accumulate(diagonal.begin(), diagonal.end(), 0.0);
  return static_cast<Real>(damping * sum / static_cast<double>(diagonal.size()));
}

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_RECONSTRUCT_DAMPING_TERM_H_
