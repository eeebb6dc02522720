#include "core/src/linalg/scaled_layer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

constexpr int64_t kConversionRows = 64;

absl::StatusOr<double> MaxAbs(ConstMatrixView matrix, const ParallelContext& context) {
  const RowBlocks blocks{matrix.rows(), kConversionRows};
  std::vector<double> largest(static_cast<size_t>(blocks.count()));
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    std::vector<double> values(static_cast<size_t>(matrix.cols()));
    double result = 0;
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      ConvertToDouble(matrix.row_bytes(row), matrix.dtype(), values.size(), values.data());
      for (const double value : values) result = std::max(result, std::abs(value));
    }
    largest[static_cast<size_t>(block)] = result;
  }));
  return *std::max_element(largest.begin(), largest.end());
}

// One square tile of (G + G^T)/2 and, by symmetry, the one across the diagonal.
template <typename T, typename Real, typename Gram>
void SymmetriseTile(ConstMatrixView gram, double factor, int64_t tile_row, int64_t tile_col,
                    Gram& out) {
  const int64_t row_end = std::min(tile_row + kConversionRows, gram.rows());
  const int64_t col_end = std::min(tile_col + kConversionRows, gram.cols());
  for (int64_t i = tile_row; i < row_end; ++i) {
    for (int64_t j = tile_col; j < col_end; ++j) {
      // Scaled first: the sum of two entries near the largest double overflows.
      const double upper = static_cast<double>(gram.row<T>(i)[j]) * factor;
      const double lower = static_cast<double>(gram.row<T>(j)[i]) * factor;
      const auto mean = static_cast<Real>(0.5 * (upper + lower));
      out(i, j) = mean;
      out(j, i) = mean;
    }
  }
}

template <typename Real, typename Gram>
absl::Status LoadGram(ConstMatrixView gram, double factor, Gram& out,
                      const ParallelContext& context) {
  const RowBlocks blocks{gram.rows(), kConversionRows};
  return context.ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t col = blocks.begin(block); col < gram.cols(); col += kConversionRows) {
      if (gram.dtype() == DType::kF64) {
        SymmetriseTile<double, Real>(gram, factor, blocks.begin(block), col, out);
      } else {
        SymmetriseTile<float, Real>(gram, factor, blocks.begin(block), col, out);
      }
    }
  });
}

// W in place: what no factor and no padding would change.
template <typename Real>
bool IsAsLoaded(ConstMatrixView weights, const Scale& scale) {
  return weights.dtype() == DTypeOf<Real>() && weights.cols() % kPanelCols == 0 &&
         scale.weights_exponent == 0;
}

template <typename LayerType>
LayerType Shaped(ConstMatrixView weights) {
  LayerType layer;
  layer.rows = weights.rows();
  layer.cols = weights.cols();
  layer.words = (layer.cols + kPanelCols - 1) / kPanelCols;
  return layer;
}

template <typename Real>
absl::StatusOr<Matrix<Real>> CopiedWeights(ConstMatrixView weights, int64_t stride,
                                           const Scale& scale, const ParallelContext& context) {
  Matrix<Real> copy(weights.rows(), stride);
  const double factor = scale.weights_factor();
  const RowBlocks blocks{weights.rows(), kConversionRows};
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    std::vector<double> values(static_cast<size_t>(weights.cols()));
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      ConvertToDouble(weights.row_bytes(row), weights.dtype(), values.size(), values.data());
      std::transform(values.begin(), values.end(), copy.row(row),
                     [&](double value) { return static_cast<Real>(value * factor); });
    }
  }));
  return copy;
}

}  // namespace

absl::StatusOr<Scale> ChooseScale(ConstMatrixView weights, ConstMatrixView gram,
                                  const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const double max_weight, MaxAbs(weights, context));
  SPARSEFW_ASSIGN_OR_RETURN(const double max_gram, MaxAbs(gram, context));
  return Scale{Scale::ExponentFor(max_weight), Scale::ExponentFor(max_gram)};
}

Scale ScaleInPlace(ConstMatrixView weights, const Scale& scale) {
  const Scale in_place = {0, scale.gram_exponent + 2 * scale.weights_exponent};
  constexpr int kLargest = Scale::kTargetExponent + 8;
  constexpr int kLeast = Scale::kTargetExponent - 24;
  const bool in_range = scale.weights_exponent <= kLargest && scale.weights_exponent >= kLeast &&
                        in_place.gram_exponent <= Scale::kLargestExponent;
  return in_range && IsAsLoaded<float>(weights, in_place) ? in_place : scale;
}

template <typename Real>
absl::StatusOr<ScaledLayer<Real>> LoadScaled(ConstMatrixView weights, ConstMatrixView gram,
                                             const Scale& scale, const ParallelContext& context) {
  auto layer = Shaped<ScaledLayer<Real>>(weights);
  SPARSEFW_ASSIGN_OR_RETURN(layer.weights,
                            CopiedWeights<Real>(weights, layer.stride(), scale, context));
  layer.gram = Matrix<Real>(layer.cols, layer.stride());
  SPARSEFW_RETURN_IF_ERROR(LoadGram<Real>(gram, scale.gram_factor(), layer.gram, context));
  return layer;
}

template <typename Real>
absl::StatusOr<PanelLayer<Real>> LoadPanels(ConstMatrixView weights, ConstMatrixView gram,
                                            const Scale& scale, const ParallelContext& context) {
  auto layer = Shaped<PanelLayer<Real>>(weights);
  if (IsAsLoaded<Real>(weights, scale)) {
    layer.weights = LayerWeights<Real>(weights);
  } else {
    SPARSEFW_ASSIGN_OR_RETURN(layer.weights,
                              CopiedWeights<Real>(weights, layer.stride(), scale, context));
  }
  layer.gram = Panels<Real>(layer.cols, layer.words);
  SPARSEFW_RETURN_IF_ERROR(LoadGram<Real>(gram, scale.gram_factor(), layer.gram, context));
  return layer;
}

template absl::StatusOr<ScaledLayer<float>> LoadScaled(ConstMatrixView, ConstMatrixView,
                                                       const Scale&, const ParallelContext&);
template absl::StatusOr<ScaledLayer<double>> LoadScaled(ConstMatrixView, ConstMatrixView,
                                                        const Scale&, const ParallelContext&);
template absl::StatusOr<PanelLayer<float>> LoadPanels(ConstMatrixView, ConstMatrixView,
                                                      const Scale&, const ParallelContext&);
template absl::StatusOr<PanelLayer<double>> LoadPanels(ConstMatrixView, ConstMatrixView,
                                                       const Scale&, const ParallelContext&);

RowBlocks BlocksOf(int64_t rows, int64_t stride) {
  constexpr int64_t kBlockElements = 32 * 1024;
  return {rows, std::max<int64_t>(1, kBlockElements / stride)};
}

}  // namespace sparsefw
