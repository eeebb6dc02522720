// The paper's iteration as one would first write it: a dense float32 product
// D*G, a full selection, a dense mask. What the CPU engine is measured against.
#ifndef SPARSEFW_CORE_BENCHMARKS_DENSE_BASELINE_H_
#define SPARSEFW_CORE_BENCHMARKS_DENSE_BASELINE_H_

#include <cstdint>

#include "core/benchmarks/bench_layer.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"

namespace sparsefw::bench {

// Uses the same BLAS, selection and threads as the engines (the caller's arena).
class DenseBaseline {
 public:
  explicit DenseBaseline(const BenchLayer& layer);
  // One open-loop step.
  void Step();
  // <D, D*G> at the iterate.
  double RelaxedLoss();

 private:
  void ComputeProduct();

  const BenchLayer& layer_;
  int64_t iteration_ = 0;
  int64_t free_capacity_ = 0;  // of the matrix
  Matrix<float> mask_;         // relaxed, fixed set included
  Matrix<float> pruned_;       // D
  Matrix<float> product_;      // D*G
  Matrix<float> scores_;
};

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_DENSE_BASELINE_H_
