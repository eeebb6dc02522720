#include "core/src/cpu/linalg/half_product_loss.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "core/src/linalg/panels.h"
#include "core/src/parallel/scratch_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kBlockRows = 512;  // rows of D at a time
constexpr int64_t kTile = kPanelCols;

// Turns a row of W into one of D.
using Prune = absl::FunctionRef<void(int64_t row, double* weights)>;

// One for every thread.
struct PanelScratch {
  PanelScratch(int64_t stride, int64_t rows) : panel(stride, kTile), out(rows, kTile) {}

  Matrix<double> panel;  // the columns of one panel of H
  Matrix<double> out;    // D H there
};

class Loss {
 public:
  Loss(ConstMatrixView weights, ConstMatrixView gram, Prune prune, const Scale& scale,
       const ParallelContext& context)
      : weights_(weights),
        gram_(gram),
        prune_(prune),
        scale_(scale),
        context_(context),
        panels_((weights.cols() + kTile - 1) / kTile),
        rows_(std::min(kBlockRows, weights.rows())),
        pruned_(rows_, panels_ * kTile),
        pool_([this] { return std::make_unique<PanelScratch>(panels_ * kTile, rows_); }) {}

  absl::StatusOr<double> Run() {
    double sum = 0;
    for (int64_t first = 0; first < weights_.rows(); first += rows_) {
      const int64_t rows = std::min(rows_, weights_.rows() - first);
      SPARSEFW_RETURN_IF_ERROR(
          context_.ForEach(rows, [&](int64_t row) { FillRow(first + row, pruned_.row(row)); }));
      std::vector<double> sums(static_cast<size_t>(panels_));
      // The last panels have the most rows: they come first.
      SPARSEFW_RETURN_IF_ERROR(context_.ForEach(panels_, [&](int64_t index) {
        const int64_t panel = panels_ - 1 - index;
        const ScratchPool<PanelScratch>::Lease lease(pool_);
        sums[static_cast<size_t>(panel)] = PanelSum(panel, rows, lease.get());
      }));
      sum = std::accumulate(sums.begin(), sums.end(), sum);
    }
    return scale_.Unscaled(sum);
  }

 private:
  int64_t cols() const { return weights_.cols(); }

  void FillRow(int64_t source, double* out) const {
    ConvertToDouble(weights_.row_bytes(source), weights_.dtype(), static_cast<size_t>(cols()), out);
    prune_(source, out);
    const double factor = scale_.weights_factor();
    for (int64_t col = 0; col < cols(); ++col) out[col] *= factor;
  }

  template <typename Gram>
  void FillPanel(int64_t panel, double* out) const {
    const int64_t first = panel * kTile;
    const int64_t width = std::min(kTile, cols() - first);
    const double factor = scale_.gram_factor();
    const auto at = [&](int64_t row, int64_t col) {
      return factor * static_cast<double>(gram_.row<Gram>(row)[col]);
    };
    std::fill_n(out, (first + width) * kTile, 0.0);
    // A tile by rows of G, then by its columns: both read memory in order.
    for (int64_t begin = 0; begin <= first; begin += kTile) {
      const int64_t end = std::min(begin + kTile, cols());
      for (int64_t k = begin; k < end; ++k) {
        for (int64_t c = 0; c < width; ++c) {
          if (k <= first + c) out[k * kTile + c] = at(k, first + c);
        }
      }
      for (int64_t c = 0; c < width; ++c) {
        for (int64_t k = begin; k < std::min(end, first + c); ++k) {
          out[k * kTile + c] += at(first + c, k);
        }
      }
    }
  }

  // sum_i sum_k d_ik (d_i H)_k over the columns k of the panel.
  double PanelSum(int64_t panel, int64_t rows, PanelScratch& scratch) {
    const int64_t depth = std::min((panel + 1) * kTile, cols());
    gram_.dtype() == DType::kF64 ? FillPanel<double>(panel, scratch.panel.data())
                                 : FillPanel<float>(panel, scratch.panel.data());
    KernelsOfPanels<double>().multiply_dense(
        {.a = pruned_.data(),
         .a_stride = pruned_.cols(),
         .rows = rows,
         .gram = {.data = scratch.panel.data(), .depth = depth, .count = 1},
         .panels = {0, 1},
         .out = scratch.out.data(),
         .out_stride = kTile});
    constexpr size_t kSums = 8;
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double* const d = pruned_.row(row) + panel * kTile;
      const double* const product = scratch.out.row(row);
      std::array<double, kSums> sums = {};
      for (size_t c = 0; c < kTile; c += kSums) {
        for (size_t i = 0; i < kSums; ++i) sums[i] += d[c + i] * product[c + i];
      }
      total += std::accumulate(sums.begin(), sums.end(), 0.0);
    }
    return total;
  }

  const ConstMatrixView weights_;
  const ConstMatrixView gram_;
  const Prune prune_;
  const Scale scale_;
  const ParallelContext& context_;
  const int64_t panels_;
  const int64_t rows_;
  Matrix<double> pruned_;  // [rows_, panels_ * 64]: D of a block of rows
  ScratchPool<PanelScratch> pool_;
};

}  // namespace

absl::StatusOr<double> HalfProductLoss(ConstMatrixView weights, ConstMatrixView gram,
                                       const Mask& mask, const Scale& scale,
                                       const ParallelContext& context) {
  const auto prune = [&](int64_t row, double* values) {
    const uint8_t* const keep = mask.row(row);
    for (int64_t col = 0; col < mask.cols(); ++col) {
      if (((keep[col >> 3] >> (col & 7)) & 1) != 0) values[col] = 0;
    }
  };
  return Loss(weights, gram, prune, scale, context).Run();
}

absl::StatusOr<double> HalfProductLossOfWeights(ConstMatrixView weights, ConstMatrixView gram,
                                                const Matrix<float>& kept, const Scale& scale,
                                                const ParallelContext& context) {
  const auto prune = [&](int64_t row, double* values) {
    for (int64_t col = 0; col < kept.cols(); ++col) {
      values[col] -= static_cast<double>(kept(row, col));
    }
  };
  return Loss(weights, gram, prune, scale, context).Run();
}

int64_t HalfProductLossBytes(int64_t rows, int64_t cols, int threads) {
  const int64_t panel = std::min(kBlockRows, rows);
  const int64_t panels = std::min(threads * kTile, cols);
  return 8 * (panel * cols + panels * panel + panels * cols);
}

}  // namespace sparsefw::cpu
