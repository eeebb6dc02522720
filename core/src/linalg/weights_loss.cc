#include "core/src/linalg/weights_loss.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/src/linalg/blas.h"
#include "core/src/linalg/scaled_layer.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

constexpr int64_t kPanelRows = 512;   // rows of D at a time
constexpr int64_t kStripeCols = 512;  // columns of G at a time
constexpr int64_t kRowsOfTask = 16;

// Elements [first, first + count) of a row, times a factor.
void ReadRow(ConstMatrixView matrix, int64_t row, int64_t first, int64_t count, double factor,
             double* out) {
  const std::byte* begin =
      matrix.row_bytes(row) + static_cast<size_t>(first) * SizeOf(matrix.dtype());
  ConvertToDouble(begin, matrix.dtype(), static_cast<size_t>(count), out);
  for (int64_t i = 0; i < count; ++i) out[i] *= factor;
}

class LossSum {
 public:
  LossSum(ConstMatrixView weights, ConstMatrixView updated, ConstMatrixView gram,
          const Scale& scale, const ParallelContext& context)
      : weights_(weights),
        updated_(updated),
        gram_(gram),
        scale_(scale),
        context_(context),
        panel_rows_(std::min(kPanelRows, weights.rows())),
        stripe_cols_(std::min(kStripeCols, weights.cols())),
        difference_(panel_rows_, weights.cols()),
        stripe_(weights.cols(), stripe_cols_),
        products_(panel_rows_, stripe_cols_) {}

  absl::StatusOr<double> Run() {
    double sum = 0;
    for (int64_t col = 0; col < weights_.cols(); col += stripe_cols_) {
      SPARSEFW_RETURN_IF_ERROR(ReadStripe(col));
      for (int64_t row = 0; row < weights_.rows(); row += panel_rows_) {
        SPARSEFW_RETURN_IF_ERROR(ReadPanel(row));
        SPARSEFW_ASSIGN_OR_RETURN(const double part, PanelTimesStripe(row, col));
        sum += part;
      }
    }
    return scale_.Unscaled(sum);
  }

 private:
  int64_t RowsFrom(int64_t row) const { return std::min(panel_rows_, weights_.rows() - row); }
  int64_t ColsFrom(int64_t col) const { return std::min(stripe_cols_, weights_.cols() - col); }

  // <D, D G> sees the symmetric part of G only, so G is read as it is.
  absl::Status ReadStripe(int64_t col) {
    const RowBlocks blocks{gram_.rows(), kRowsOfTask};
    return context_.ForEach(blocks.count(), [&](int64_t block) {
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        ReadRow(gram_, row, col, ColsFrom(col), scale_.gram_factor(), stripe_.row(row));
      }
    });
  }

  absl::Status ReadPanel(int64_t first) {
    const RowBlocks blocks{RowsFrom(first), kRowsOfTask};
    const int64_t cols = weights_.cols();
    return context_.ForEach(blocks.count(), [&](int64_t block) {
      std::vector<double> updated(static_cast<size_t>(cols));
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        double* out = difference_.row(row);
        ReadRow(weights_, first + row, 0, cols, scale_.weights_factor(), out);
        ReadRow(updated_, first + row, 0, cols, scale_.weights_factor(), updated.data());
        for (int64_t i = 0; i < cols; ++i) out[i] -= updated[static_cast<size_t>(i)];
      }
    });
  }

  absl::StatusOr<double> PanelTimesStripe(int64_t row, int64_t col) {
    const int64_t rows = RowsFrom(row);
    SPARSEFW_RETURN_IF_ERROR(Gemm({.rows = rows,
                                   .cols = ColsFrom(col),
                                   .depth = weights_.cols(),
                                   .a = difference_.data(),
                                   .a_stride = difference_.cols(),
                                   .b = stripe_.data(),
                                   .b_stride = stripe_cols_,
                                   .c = products_.data(),
                                   .c_stride = stripe_cols_},
                                  context_));
    std::vector<double> sums(static_cast<size_t>(rows));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(rows, [&](int64_t i) {
      const double* product = products_.row(i);
      sums[static_cast<size_t>(i)] =
          std::inner_product(product, product + ColsFrom(col), difference_.row(i) + col, 0.0);
    }));
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  }

  const ConstMatrixView weights_;
  const ConstMatrixView updated_;
  const ConstMatrixView gram_;
  const Scale scale_;
  const ParallelContext& context_;
  const int64_t panel_rows_;
  const int64_t stripe_cols_;
  Matrix<double> difference_;  // [panel_rows_, cols]: D of one panel
  Matrix<double> stripe_;      // [cols, stripe_cols_]: columns of G
  Matrix<double> products_;    // [panel_rows_, stripe_cols_]: D G
};

}  // namespace

absl::StatusOr<double> WeightsLoss(ConstMatrixView weights, ConstMatrixView updated,
                                   ConstMatrixView gram, const ParallelContext& context) {
  SPARSEFW_ASSIGN_OR_RETURN(const Scale scale, ChooseScale(weights, gram, context));
  return LossSum(weights, updated, gram, scale, context).Run();
}

}  // namespace sparsefw
