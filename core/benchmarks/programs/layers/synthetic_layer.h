// A layer of any size within seconds, seeded: what the layers of LLaMA are
// stood in for by.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/matrix.h"

namespace sparsefw::bench {

struct SyntheticLayer {
  Matrix<float> weights;  // [rows, cols], Gaussian
  Matrix<float> gram;     // [cols, cols]
};

// The Gram matrix is that of 2 * cols tokens, each Gaussian noise and twice one
// of 32 directions that tokens share, as in suite/layers.py. Only the first
// 8192 tokens are drawn, so that 14336 columns take seconds; the others enter
// with their expectation, which keeps the matrix positive definite:
//
//   G = X^T X + (2 cols - drawn) (I + 4/32 D^T D)     X [drawn, cols], D [32, cols]
//
// The same for any number of threads but for rounding.
absl::StatusOr<SyntheticLayer> MakeSyntheticLayer(int64_t rows, int64_t cols, uint64_t seed);

// A matrix of standard normal values, seeded.
Matrix<float> GaussianMatrix(int64_t rows, int64_t cols, uint64_t seed);

// As tensors "weight" and "gram", what OpenLayer reads.
absl::Status WriteLayer(const std::string& path, const SyntheticLayer& layer);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_
