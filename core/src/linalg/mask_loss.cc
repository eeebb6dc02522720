#include "core/src/linalg/mask_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/src/linalg/blas.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

constexpr int64_t kPanelRows = 512;   // rows of D at a time
constexpr int64_t kStripeCols = 512;  // rows of D^T D at a time

// Turns a row of W into one of D.
using Prune = absl::FunctionRef<void(int64_t row, double* weights)>;

class LossSum {
 public:
  LossSum(ConstMatrixView weights, ConstMatrixView gram, Prune prune, const Scale& scale,
          const ParallelContext& context)
      : weights_(weights),
        gram_(gram),
        prune_(prune),
        scale_(scale),
        context_(context),
        rows_(std::min(kPanelRows, weights.rows())),
        stripe_(std::min(kStripeCols, weights.cols())),
        pruned_(rows_, weights.cols()),
        transposed_(stripe_, rows_),
        products_(stripe_, weights.cols()) {}

  absl::StatusOr<double> Run() {
    double sum = 0;
    for (int64_t first = 0; first < cols(); first += stripe_) {
      SPARSEFW_RETURN_IF_ERROR(FormProducts(first));
      SPARSEFW_ASSIGN_OR_RETURN(const double part, DotWithGram(first));
      sum += part;
    }
    // A sum of squares: below 0 by rounding only, or because G is not PSD.
    return scale_.Unscaled(sum);
  }

 private:
  int64_t cols() const { return weights_.cols(); }
  int64_t StripeOf(int64_t first) const { return std::min(stripe_, cols() - first); }

  // products = (D^T D)[first .. first + stripe, first ..], columns from `first`.
  absl::Status FormProducts(int64_t first) {
    for (int64_t row = 0; row < weights_.rows(); row += rows_) {
      const int64_t rows = std::min(rows_, weights_.rows() - row);
      SPARSEFW_RETURN_IF_ERROR(FillPanel(row, rows, first));
      const GemmArgs<double> args = {.rows = StripeOf(first),
                                     .cols = cols() - first,
                                     .depth = rows,
                                     .a = transposed_.data(),
                                     .a_stride = rows_,
                                     .b = pruned_.data() + first,
                                     .b_stride = cols(),
                                     .c = products_.data() + first,
                                     .c_stride = cols(),
                                     .accumulate = row > 0};
      SPARSEFW_RETURN_IF_ERROR(Gemm(args, context_));
    }
    return absl::OkStatus();
  }

  absl::Status FillPanel(int64_t first_row, int64_t rows, int64_t first_col) {
    constexpr int64_t kRows = 16;
    const RowBlocks blocks{rows, kRows};
    return context_.ForEach(blocks.count(), [&](int64_t block) {
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        FillRow(first_row + row, row, first_col);
      }
    });
  }

  void FillRow(int64_t source, int64_t row, int64_t first) {
    double* out = pruned_.row(row);
    ConvertToDouble(weights_.row_bytes(source), weights_.dtype(), static_cast<size_t>(cols()), out);
    prune_(source, out);
    const double factor = scale_.weights_factor();
    for (int64_t col = first; col < cols(); ++col) out[col] *= factor;
    for (int64_t col = 0; col < StripeOf(first); ++col) transposed_(col, row) = out[first + col];
  }

  // The stripe's part of sum_jk (D^T D)_jk G_jk: every pair j < k counts twice.
  absl::StatusOr<double> DotWithGram(int64_t first) {
    const int64_t stripe = StripeOf(first);
    std::vector<double> sums(static_cast<size_t>(stripe));
    SPARSEFW_RETURN_IF_ERROR(context_.ForEach(stripe, [&](int64_t index) {
      const int64_t j = first + index;
      const double* products = products_.row(index);
      const auto mean = [&](int64_t k) { return 0.5 * (GramAt(j, k) + GramAt(k, j)); };
      double sum = 0.5 * products[j] * mean(j);
      for (int64_t k = j + 1; k < cols(); ++k) sum += products[k] * mean(k);
      sums[static_cast<size_t>(index)] = 2 * sum;
    }));
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  }

  double GramAt(int64_t row, int64_t col) const {
    return scale_.gram_factor() * (gram_.dtype() == DType::kF64
                                       ? gram_.row<double>(row)[col]
                                       : static_cast<double>(gram_.row<float>(row)[col]));
  }

  const ConstMatrixView weights_;
  const ConstMatrixView gram_;
  const Prune prune_;
  const Scale scale_;
  const ParallelContext& context_;
  const int64_t rows_;
  const int64_t stripe_;
  Matrix<double> pruned_;      // [rows_, cols]: D of one panel
  Matrix<double> transposed_;  // [stripe_, rows_]: the stripe's columns of it
  Matrix<double> products_;    // [stripe_, cols]
};

}  // namespace

absl::StatusOr<double> MaskLoss(ConstMatrixView weights, ConstMatrixView gram, const Mask& mask,
                                const Scale& scale, const ParallelContext& context) {
  const auto prune = [&](int64_t row, double* values) {
    const uint8_t* keep = mask.row(row);
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (((keep[col >> 3] >> (col & 7)) & 1) != 0) values[col] = 0;
    }
  };
  return LossSum(weights, gram, prune, scale, context).Run();
}

absl::StatusOr<double> LossOfWeights(ConstMatrixView weights, ConstMatrixView gram,
                                     const Matrix<float>& kept, const Scale& scale,
                                     const ParallelContext& context) {
  const auto prune = [&](int64_t row, double* values) {
    for (int64_t col = 0; col < kept.cols(); ++col) {
      values[col] -= static_cast<double>(kept(row, col));
    }
  };
  return LossSum(weights, gram, prune, scale, context).Run();
}

int64_t MaskLossBytes(int64_t rows, int64_t cols) {
  const int64_t panel = std::min(kPanelRows, rows);
  const int64_t stripe = std::min(kStripeCols, cols);
  return 8 * (panel * cols + stripe * panel + stripe * cols);
}

}  // namespace sparsefw
