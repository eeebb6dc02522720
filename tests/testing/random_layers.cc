#include "tests/testing/random_layers.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace sparsefw::testing {
namespace {

// `count` distinct columns, none of `taken`; marks them taken.
std::vector<int64_t> PickColumns(int64_t count, std::vector<bool>& taken, Random& random) {
  std::vector<int64_t> picked;
  const auto cols = static_cast<int64_t>(taken.size());
  for (int64_t tries = 0; std::ssize(picked) < count && tries < 100 * cols; ++tries) {
    const int64_t col = random.Below(cols);
    if (taken[static_cast<size_t>(col)]) continue;
    taken[static_cast<size_t>(col)] = true;
    picked.push_back(col);
  }
  return picked;
}

Matrix<float> NormalMatrix(int64_t rows, int64_t cols, double scale, Random& random) {
  Matrix<float> matrix(rows, cols);
  for (float& value : matrix.span()) value = static_cast<float>(scale * random.Normal());
  return matrix;
}

void ScaleColumns(Matrix<float>& matrix, const std::vector<int64_t>& cols, float scale) {
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    for (const int64_t col : cols) matrix(row, col) *= scale;
  }
}

// Every token mixes a few shared directions with noise of its own.
Matrix<float> CorrelatedActivations(const LayerOptions& options, int64_t tokens, Random& random) {
  const int64_t directions = options.cols / 8 + 1;
  const double shared = std::sqrt(options.correlation / static_cast<double>(directions));
  const Matrix<float> mixing = NormalMatrix(directions, options.cols, shared, random);
  Matrix<float> activations =
      NormalMatrix(tokens, options.cols, std::sqrt(1 - options.correlation), random);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t d = 0; d < directions; ++d) {
      const auto factor = static_cast<float>(random.Normal());
      for (int64_t col = 0; col < options.cols; ++col) {
        activations(token, col) += factor * mixing(d, col);
      }
    }
  }
  return activations;
}

}  // namespace

uint64_t Random::Bits() {
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Bits() >> 11) * 0x1.0p-53; }

double Random::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

int64_t Random::Below(int64_t limit) {
  return static_cast<int64_t>(Bits() % static_cast<uint64_t>(limit));
}

RandomLayer MakeRandomLayer(const LayerOptions& options) {
  Random random(options.seed);
  const int64_t tokens = options.tokens == 0 ? 4 * options.cols : options.tokens;
  RandomLayer layer;
  layer.weights = NormalMatrix(options.rows, options.cols,
                               1 / std::sqrt(static_cast<double>(options.cols)), random);
  layer.activations = CorrelatedActivations(options, tokens, random);
  std::vector<bool> taken(static_cast<size_t>(options.cols));
  const auto scale = static_cast<float>(options.large_scale);
  ScaleColumns(layer.weights, PickColumns(options.large_columns, taken, random), scale);
  ScaleColumns(layer.activations, PickColumns(options.large_columns, taken, random), scale);
  ScaleColumns(layer.activations, PickColumns(options.dead_columns, taken, random), 0);
  layer.gram = GramOf(layer.activations.view());
  return layer;
}

Matrix<double> GramOf(ConstMatrixView activations) {
  const Matrix<double> x = ToDouble(activations);
  Matrix<double> gram(x.cols(), x.cols());
  for (int64_t token = 0; token < x.rows(); ++token) {
    for (int64_t i = 0; i < x.cols(); ++i) {
      const double value = x(token, i);
      for (int64_t j = i; j < x.cols(); ++j) gram(i, j) += value * x(token, j);
    }
  }
  for (int64_t i = 0; i < x.cols(); ++i) {
    for (int64_t j = 0; j < i; ++j) gram(i, j) = gram(j, i);
  }
  return gram;
}

TypedMatrix::TypedMatrix(ConstMatrixView source, DType dtype, int64_t padding)
    : dtype_(dtype),
      rows_(source.rows()),
      cols_(source.cols()),
      stride_(source.cols() + padding),
      bytes_(static_cast<size_t>(rows_ * stride_) * SizeOf(dtype)) {
  const Matrix<double> values = ToDouble(source);
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t col = 0; col < cols_; ++col) Set(row, col, values(row, col));
    for (int64_t col = cols_; col < stride_; ++col) {
      Set(row, col, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

ConstMatrixView TypedMatrix::view() const {
  return ConstMatrixView(bytes_.data(), dtype_, rows_, cols_, stride_);
}

void TypedMatrix::Set(int64_t row, int64_t col, double value) {
  const auto store = [&](auto element) {
    const size_t index = static_cast<size_t>(row * stride_ + col) * sizeof(element);
    std::memcpy(&bytes_[index], &element, sizeof(element));
  };
  switch (dtype_) {
    case DType::kF64:
      return store(value);
    case DType::kF16:
      return store(ToHalf(static_cast<float>(value)));
    case DType::kBF16:
      return store(ToBFloat16(static_cast<float>(value)));
    case DType::kF32:
      return store(static_cast<float>(value));
    case DType::kBool:
      return store(static_cast<uint8_t>(value != 0));
  }
}

Matrix<double> ToDouble(ConstMatrixView view) {
  Matrix<double> result(view.rows(), view.cols());
  for (int64_t row = 0; row < view.rows(); ++row) {
    ConvertToDouble(view.row_bytes(row), view.dtype(), static_cast<size_t>(view.cols()),
                    result.row(row));
  }
  return result;
}

Matrix<float> ToFloat32(ConstMatrixView view) {
  Matrix<float> result(view.rows(), view.cols());
  for (int64_t row = 0; row < view.rows(); ++row) {
    ConvertToFloat(view.row_bytes(row), view.dtype(), static_cast<size_t>(view.cols()),
                   result.row(row));
  }
  return result;
}

}  // namespace sparsefw::testing
