// Solve on the engines of the host.
#ifndef SPARSEFW_TESTS_CORE_SOLVER_SOLVE_ON_HOST_H_
#define SPARSEFW_TESTS_CORE_SOLVER_SOLVE_ON_HOST_H_

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sparsefw/solver.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::testing {

inline Problem ProblemOf(const RandomLayer& layer, const Pattern& pattern) {
  return {layer.weights.view(), layer.gram.view(), pattern, ConstMatrixView(), nullptr};
}

// One of each kind.
inline const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {Pattern::Unstructured(0.6), Pattern::PerRow(0.6),
                                                Pattern::KeepOfGroup(2, 4)};
  return patterns;
}

// Its parameter names the backend.
class SolveOnHostTest : public ::testing::TestWithParam<std::string> {
 protected:
  absl::StatusOr<SolveResult> Run(const Problem& problem, const SolveOptions& options,
                                  SolveObserver* observer = nullptr) const {
    return Solve(problem, options, **FindBackend(GetParam()), observer, nullptr);
  }
};

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_SOLVER_SOLVE_ON_HOST_H_
