// The inputs that an engine is loaded with, made from a layer as the solver makes them.
#ifndef SPARSEFW_TESTS_TESTING_STARTING_POINT_H_
#define SPARSEFW_TESTS_TESTING_STARTING_POINT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "sparsefw/backend.h"
#include "sparsefw/saliency.h"

namespace sparsefw::testing {

// The views of weights and gram are the caller's.
struct StartingPoint {
  ConstMatrixView weights;
  ConstMatrixView gram;
  Pattern pattern;
  Matrix<float> saliency;
  Mask warm;
  Mask fixed;

  // Valid while this object lives and stays where it is.
  EngineProblem problem() const { return {weights, gram, pattern, saliency.view(), &warm, &fixed}; }
};

absl::StatusOr<StartingPoint> MakeStartingPoint(ConstMatrixView weights, ConstMatrixView gram,
                                                const Pattern& pattern,
                                                const SaliencyOptions& options, double alpha);

// An engine with the starting point loaded; the layer must outlive it.
absl::StatusOr<std::unique_ptr<Engine>> LoadedEngine(const Backend& backend,
                                                     const StartingPoint& start,
                                                     const EngineOptions& options = {});

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_TESTING_STARTING_POINT_H_
