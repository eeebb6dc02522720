#include "tests/testing/starting_point.h"

#include <vector>

#include "sparsefw/status_macros.h"
#include "tests/testing/random_layers.h"

namespace sparsefw::testing {

absl::StatusOr<StartingPoint> MakeStartingPoint(ConstMatrixView weights, ConstMatrixView gram,
                                                const Pattern& pattern,
                                                const SaliencyOptions& options, double alpha) {
  const Matrix<double> values = ToDouble(gram);
  std::vector<double> diagonal;
  for (int64_t i = 0; i < values.rows(); ++i) diagonal.push_back(values(i, i));
  StartingPoint start;
  start.weights = weights;
  start.gram = gram;
  start.pattern = pattern;
  SPARSEFW_ASSIGN_OR_RETURN(start.saliency, ComputeSaliency(weights, diagonal, options));
  SPARSEFW_ASSIGN_OR_RETURN(start.warm, TopScores(start.saliency.view(), pattern));
  SPARSEFW_ASSIGN_OR_RETURN(start.fixed,
                            FixedSet(start.saliency.view(), start.warm, pattern, alpha));
  return start;
}

absl::StatusOr<std::unique_ptr<Engine>> LoadedEngine(const Backend& backend,
                                                     const StartingPoint& start,
                                                     const EngineOptions& options) {
  SPARSEFW_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, backend.CreateEngine(options));
  SPARSEFW_RETURN_IF_ERROR(engine->Load(start.problem()));
  return engine;
}

}  // namespace sparsefw::testing
