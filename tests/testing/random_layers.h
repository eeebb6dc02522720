// Seeded layers that look like real ones: correlated activations with a few
// outlier features, weights with a few large columns.
//
// The generator is our own, so a seed means the same layer on every platform.
#ifndef SPARSEFW_TESTS_TESTING_RANDOM_LAYERS_H_
#define SPARSEFW_TESTS_TESTING_RANDOM_LAYERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsefw/dtype.h"
#include "sparsefw/matrix.h"

namespace sparsefw::testing {

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits();
  double Uniform();              // [0, 1)
  double Normal();               // Box-Muller
  int64_t Below(int64_t limit);  // [0, limit)

 private:
  uint64_t state_;
};

struct LayerOptions {
  int64_t rows = 16;
  int64_t cols = 32;
  int64_t tokens = 0;        // 0: 4 * cols, so that G has full rank
  double correlation = 0.9;  // [0, 1]: share of the activations' variance in few directions
  int64_t large_columns = 2;
  double large_scale = 10;   // of those columns of W, and of other columns of X
  int64_t dead_columns = 0;  // features that are always 0: zero rows and columns of G
  uint64_t seed = 1;
};

struct RandomLayer {
  Matrix<float> weights;      // [rows, cols]
  Matrix<float> activations;  // [tokens, cols], token by token
  Matrix<double> gram;        // [cols, cols] = activations^T activations, exactly symmetric
};

RandomLayer MakeRandomLayer(const LayerOptions& options);

// activations^T activations, summed token by token in float64.
Matrix<double> GramOf(ConstMatrixView activations);

// A matrix rounded to a dtype (F32, F16, BF16, F64), with a stride of its own.
// The elements between cols and stride are NaN: whoever reads them shows it.
class TypedMatrix {
 public:
  TypedMatrix(ConstMatrixView source, DType dtype, int64_t padding = 0);
  ConstMatrixView view() const;
  // Writes one element, rounded to the dtype.
  void Set(int64_t row, int64_t col, double value);

 private:
  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::vector<std::byte> bytes_;
};

// Exact copies, whatever the dtype and stride of the view.
Matrix<double> ToDouble(ConstMatrixView view);
Matrix<float> ToFloat32(ConstMatrixView view);

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_TESTING_RANDOM_LAYERS_H_
