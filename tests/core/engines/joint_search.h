// The joint search of an engine on a starting point, and its loss by nested loops.
#ifndef SPARSEFW_TESTS_CORE_ENGINES_JOINT_SEARCH_H_
#define SPARSEFW_TESTS_CORE_ENGINES_JOINT_SEARCH_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "gtest/gtest.h"
#include "sparsefw/backend.h"
#include "sparsefw/problem.h"
#include "sparsefw/status_macros.h"
#include "tests/core/engines/engine_kinds.h"
#include "tests/testing/masks.h"
#include "tests/testing/matchers.h"
#include "tests/testing/random_layers.h"
#include "tests/testing/starting_point.h"

namespace sparsefw::testing {

inline constexpr EngineKind kJointEngines[] = {EngineKind::kReference, EngineKind::kCpuFloat64,
                                               EngineKind::kCpuFloat32, EngineKind::kCudaFloat64,
                                               EngineKind::kCudaFloat32};

// (W - weights) G (W - weights)^T by three nested loops.
inline double LossOf(const StartingPoint& start, const Matrix<double>& weights) {
  const Matrix<double> w = ToDouble(start.weights);
  const Matrix<double> gram = ToDouble(start.gram);
  double loss = 0;
  for (int64_t row = 0; row < w.rows(); ++row) {
    for (int64_t i = 0; i < w.cols(); ++i) {
      for (int64_t j = 0; j < w.cols(); ++j) {
        loss += (w(row, i) - weights(row, i)) * gram(i, j) * (w(row, j) - weights(row, j));
      }
    }
  }
  return loss;
}

// Rounding of a loss in the engine's precision of G.
inline double Rounding(EngineKind kind) { return IsFloat32(kind) ? 1e-6 : 1e-9; }

struct Searched {
  JointResult result;
  Matrix<float> start_weights;
  double start_loss = 0;
};

struct SearchArgs {
  JointOptions options = {.damping = 0, .excluded = 0};
  std::function<bool()> out_of_time = {};
  int threads = 2;
  const StopSignal* stop = nullptr;
  const Matrix<float>* weights = nullptr;  // of the start; null: as the engine reconstructs them
  std::function<bool()> solving_out_of_time = {};
  std::optional<double> alpha = {};  // given: the engine chooses the fixed set
};

inline absl::StatusOr<Searched> Search(EngineKind kind, const StartingPoint& start,
                                       const SearchArgs& args = {}) {
  Searched searched;
  SPARSEFW_ASSIGN_OR_RETURN(
      const auto engine, LoadedEngine(kind, start, {.threads = args.threads, .stop = args.stop}));
  if (args.weights != nullptr) {
    searched.start_weights = ToFloat32(args.weights->view());
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(searched.start_weights, engine->Reconstruct(start.warm, {}));
  }
  SPARSEFW_ASSIGN_OR_RETURN(searched.start_loss, engine->LossOfWeights(searched.start_weights));
  SPARSEFW_ASSIGN_OR_RETURN(
      searched.result,
      engine->SearchJointly(start.warm, {.options = args.options,
                                         .fixed = args.alpha ? nullptr : &start.fixed,
                                         .alpha = args.alpha.value_or(0),
                                         .weights = &searched.start_weights,
                                         .out_of_time = args.out_of_time,
                                         .solving_out_of_time = args.solving_out_of_time}));
  return searched;
}

inline void ExpectFits(const StartingPoint& start, const JointResult& result) {
  SPARSEFW_EXPECT_OK(ValidateMaskCounts(result.mask, start.pattern, "mask"));
  EXPECT_TRUE(IsSubset(start.fixed, result.mask));
  for (int64_t row = 0; row < result.mask.rows(); ++row) {
    for (int64_t col = 0; col < result.mask.cols(); ++col) {
      EXPECT_TRUE(result.mask.Get(row, col) || result.weights(row, col) == 0);
    }
  }
}

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_ENGINES_JOINT_SEARCH_H_
