// A layer of any size within seconds, seeded: what the layers of LLaMA are stood in for by.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sparsefw/dtype.h"
#include "sparsefw/matrix.h"

namespace sparsefw::bench {

struct SyntheticLayer {
  Matrix<float> weights;      // [rows, cols], Gaussian
  Matrix<float> gram;         // [cols, cols]
  DType dtype = DType::kF32;  // in which the weights are written, exactly
};

// kFlat: but for 32 directions all eigenvalues of G are near each other. kDecaying: as in layers of
// language models a few directions have most of the energy, some inputs are much larger than
// others, and weights are bfloat16.
enum class Spectrum { kFlat, kDecaying };

// The Gram matrix is that of 2 * cols tokens, each Gaussian noise and twice one
// of 32 directions that tokens share, as in suite/layers.py. Only the first
// 8192 tokens are drawn, so that 14336 columns take seconds; the others enter
// with their expectation, which keeps the matrix positive definite:
//
//   G = X^T X + (2 cols - drawn) (I + 4/32 D^T D)     X [drawn, cols], D [32, cols]
//
// kDecaying: token t is (noise/4 + 4 d_k) S, k of 256 directions with a share of 1/k each, S a
// diagonal of lognormal scales; nothing enters with its expectation.
//
// The same for any number of threads but for rounding.
absl::StatusOr<SyntheticLayer> MakeSyntheticLayer(int64_t rows, int64_t cols, uint64_t seed,
                                                  Spectrum spectrum = Spectrum::kFlat);

// A matrix of standard normal values, seeded.
Matrix<float> GaussianMatrix(int64_t rows, int64_t cols, uint64_t seed);

// As tensors "weight" and "gram", what OpenLayer reads.
absl::Status WriteLayer(const std::string& path, const SyntheticLayer& layer);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_SYNTHETIC_LAYER_H_
