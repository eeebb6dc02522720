#include "core/src/cpu/linalg/loss_change.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/src/cpu/linalg/kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kTile = 64;  // a tile of G and its mirror image fit in L1
constexpr int64_t kRowsPerBlock = 16;

template <typename T>
bool TileIsSymmetric(ConstMatrixView gram, int64_t first_row, int64_t first_col) {
  const int64_t last_row = std::min(gram.rows(), first_row + kTile);
  const int64_t last_col = std::min(gram.cols(), first_col + kTile);
  bool same = true;
  for (int64_t j = first_col; j < last_col; ++j) {
    const T* const mirror = gram.row<T>(j);
    for (int64_t i = first_row; i < last_row; ++i) same &= gram.row<T>(i)[j] == mirror[i];
  }
  return same;
}

// The buffers of a block of rows; its rows use them one after the other.
struct RowDifference {
  explicit RowDifference(int64_t width) : sum(1, width) {}

  Matrix<double> sum;           // D + D', scaled
  std::vector<uint32_t> cols;   // where the masks differ
  std::vector<double> factors;  // D' - D there, scaled
};

// Into `out`; false where the masks are the same.
bool FindDifference(ConstMatrixView weights, const Mask& from, const Mask& to, double factor,
                    int64_t row, RowDifference& out) {
  const uint8_t* const before = from.row(row);
  const uint8_t* const after = to.row(row);
  if (std::memcmp(before, after, static_cast<size_t>(from.row_bytes())) == 0) return false;
  out.cols.clear();
  out.factors.clear();
  double* const sum = out.sum.data();
  ConvertToDouble(weights.row_bytes(row), weights.dtype(), static_cast<size_t>(weights.cols()),
                  sum);
  for (int64_t col = 0; col < weights.cols(); ++col) {
    const int kept_before = (before[col >> 3] >> (col & 7)) & 1;
    const int kept_after = (after[col >> 3] >> (col & 7)) & 1;
    const double weight = sum[col] * factor;
    sum[col] = weight * (2 - kept_before - kept_after);
    if (kept_before == kept_after) continue;
    out.cols.push_back(static_cast<uint32_t>(col));
    out.factors.push_back(kept_before != 0 ? weight : -weight);
  }
  return true;
}

// sum_t factor_t <G_t, D + D'>
template <typename T>
double ChangeOf(ConstMatrixView gram, const RowDifference& row) {
  double change = 0;
  const T* rows[kDotRows];
  double dots[kDotRows];
  for (size_t first = 0; first < row.cols.size(); first += kDotRows) {
    const size_t count = std::min<size_t>(kDotRows, row.cols.size() - first);
    // A group that is not full takes its last row several times over.
    for (size_t i = 0; i < kDotRows; ++i) {
      rows[i] = gram.row<T>(row.cols[first + std::min(i, count - 1)]);
    }
    Kernels<T>().dot_rows(rows, row.sum.data(), gram.cols(), dots);
    for (size_t i = 0; i < count; ++i) change += row.factors[first + i] * dots[i];
  }
  return change;
}

}  // namespace

absl::StatusOr<bool> IsSymmetric(ConstMatrixView gram, const ParallelContext& context) {
  const RowBlocks blocks{gram.rows(), kTile};
  std::atomic<bool> symmetric = true;
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t col = blocks.begin(block); col < gram.cols() && symmetric; col += kTile) {
      const bool same = gram.dtype() == DType::kF64
                            ? TileIsSymmetric<double>(gram, blocks.begin(block), col)
                            : TileIsSymmetric<float>(gram, blocks.begin(block), col);
      if (!same) symmetric = false;
    }
  }));
  return symmetric.load();
}

absl::StatusOr<double> LossChange(ConstMatrixView weights, ConstMatrixView gram, const Mask& from,
                                  const Mask& to, const Scale& scale,
                                  const ParallelContext& context) {
  const RowBlocks blocks{weights.rows(), kRowsPerBlock};
  std::vector<double> changes(static_cast<size_t>(blocks.count()));
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    RowDifference difference(weights.cols());
    double change = 0;
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      if (!FindDifference(weights, from, to, scale.weights_factor(), row, difference)) continue;
      change += gram.dtype() == DType::kF64 ? ChangeOf<double>(gram, difference)
                                            : ChangeOf<float>(gram, difference);
    }
    changes[static_cast<size_t>(block)] = change;
  }));
  const double scaled = std::accumulate(changes.begin(), changes.end(), 0.0);
  // The products took G as it is.
  return scale.Unscaled(scaled * scale.gram_factor());
}

}  // namespace sparsefw::cpu
