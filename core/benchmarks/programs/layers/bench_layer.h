// The layers that benchmarks run on: seeded, correlated, of any size.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_BENCH_LAYER_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_BENCH_LAYER_H_

#include <cstdint>

#include "sparsefw/backend.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::bench {

// A layer and the point that Frank-Wolfe starts from: Wanda's mask and scores.
struct BenchLayer {
  Matrix<float> weights;   // [rows, cols], Gaussian
  Matrix<float> gram;      // [cols, cols], of 2 * cols tokens with a low-rank part
  Matrix<float> saliency;  // [rows, cols]
  Pattern pattern;
  Mask warm;
  Mask fixed;

  EngineProblem problem() const;
};

// Stops the program when a layer cannot be made: a benchmark of nothing is worse than none.
// Weights and Gram matrix of one shape are made once and kept.
const BenchLayer& GetBenchLayer(int64_t rows, int64_t cols, const Pattern& pattern, double alpha);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_BENCH_LAYER_H_
