#include "core/src/sparsegpt/inverse_factor.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/src/linalg/blas.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::sparsegpt {
namespace {

constexpr int64_t kTile = 128;

}  // namespace

InverseFactor::InverseFactor(Matrix<double>& h, int64_t size, const ParallelContext& context)
    : h_(h),
      size_(size),
      context_(context),
      diagonal_(size, kTile),
      inverses_(size, kTile),
      panel_(size, kTile),
      transposed_(kTile, size),
      small_(kTile, kTile) {
  for (int64_t index = 0; index < tiles(); ++index) {
    const Tile tile = TileAt(index);
    for (int64_t row = tile.begin; row < tile.end; ++row) {
      std::copy_n(At(row, tile.begin), tile.size(), diagonal_.row(row));
    }
  }
}

int64_t InverseFactor::tiles() const { return (size_ + kTile - 1) / kTile; }

InverseFactor::Tile InverseFactor::TileAt(int64_t index) const {
  return {index * kTile, std::min(size_, (index + 1) * kTile)};
}

absl::StatusOr<std::optional<FailedPivot>> InverseFactor::Factorize(double added) {
  SPARSEFW_RETURN_IF_ERROR(Restore(added));
  for (int64_t index = tiles() - 1; index >= 0; --index) {
    const Tile tile = TileAt(index);
    if (const std::optional<FailedPivot> failed = FactorizeDiagonal(tile, added)) return failed;
    InvertDiagonal(tile);
    SPARSEFW_RETURN_IF_ERROR(EliminateTile(index));
  }
  for (int64_t index = 0; index < tiles(); ++index) {
    SPARSEFW_RETURN_IF_ERROR(InvertColumns(index));
  }
  return std::nullopt;
}

// The upper triangle of H + added * I, from the tiles below the diagonal.
absl::Status InverseFactor::Restore(double added) {
  return context_.ForEach(tiles(), [&](int64_t index) {
    const Tile tile = TileAt(index);
    for (int64_t row = tile.begin; row < tile.end; ++row) {
      std::copy_n(diagonal_.row(row), tile.size(), At(row, tile.begin));
      *At(row, row) += added;
    }
    for (int64_t below = tile.end; below < size_; below += kTile) {
      const int64_t end = std::min(size_, below + kTile);
      for (int64_t row = tile.begin; row < tile.end; ++row) {
        for (int64_t col = below; col < end; ++col) *At(row, col) = *At(col, row);
      }
    }
  });
}

// R of one tile, last column first: H_ij = sum over k >= max(i, j) of R_ik R_jk.
std::optional<FailedPivot> InverseFactor::FactorizeDiagonal(Tile tile, double added) {
  const auto dot = [](const double* a, const double* b, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) sum += a[k] * b[k];
    return sum;
  };
  const double least = static_cast<double>(size_) * std::numeric_limits<double>::epsilon();
  for (int64_t j = tile.size() - 1; j >= 0; --j) {
    double* row = At(tile.begin + j, tile.begin);
    const double pivot = row[j] - dot(row, row, j + 1, tile.size());
    const double diagonal = diagonal_(tile.begin + j, j) + added;
    // The negation catches NaN.
    if (!(pivot > 0 && pivot >= least * diagonal)) {
      return FailedPivot{tile.begin + j, pivot, diagonal};
    }
    row[j] = std::sqrt(pivot);
    for (int64_t i = 0; i < j; ++i) {
      double* above = At(tile.begin + i, tile.begin);
      above[j] = (above[j] - dot(above, row, j + 1, tile.size())) / row[j];
    }
    std::fill_n(row, j, 0.0);  // below the diagonal
  }
  return std::nullopt;
}

// Rows of U from the last: (row i of I - sum over k > i of R_ik * row k of U) / R_ii.
void InverseFactor::InvertDiagonal(Tile tile) {
  for (int64_t i = tile.size() - 1; i >= 0; --i) {
    const double* factor = At(tile.begin + i, tile.begin);
    double* out = inverses_.row(tile.begin + i);
    std::fill_n(out, tile.size(), 0.0);
    out[i] = 1;
    for (int64_t k = i + 1; k < tile.size(); ++k) {
      const double* below = inverses_.row(tile.begin + k);
      for (int64_t j = k; j < tile.size(); ++j) out[j] -= factor[k] * below[j];
    }
    for (int64_t j = i; j < tile.size(); ++j) out[j] /= factor[i];
  }
}

// The column of tiles above the diagonal becomes R; its outer product leaves H.
absl::Status InverseFactor::EliminateTile(int64_t index) {
  const Tile tile = TileAt(index);
  for (int64_t i = 0; i < tile.size(); ++i) {
    for (int64_t j = 0; j < tile.size(); ++j) small_(j, i) = inverses_(tile.begin + i, j);
  }
  SPARSEFW_RETURN_IF_ERROR(Gemm<double>({tile.begin, tile.size(), tile.size()},
                                        {At(0, tile.begin), h_.cols()}, small_, panel_, context_));
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(index, [&](int64_t above) {
    for (int64_t row = TileAt(above).begin; row < TileAt(above).end; ++row) {
      std::copy_n(panel_.row(row), tile.size(), At(row, tile.begin));
      for (int64_t col = 0; col < tile.size(); ++col) transposed_(col, row) = -panel_(row, col);
    }
  }));
  return context_.ForEach(index, [&](int64_t above) {
    const Tile rows = TileAt(above);
    Gemm<double>({.rows = rows.size(),
                  .cols = tile.begin - rows.begin,
                  .depth = tile.size(),
                  .accumulate = true},
                 {panel_.row(rows.begin), kTile}, {transposed_.data() + rows.begin, size_},
                 {At(rows.begin, rows.begin), h_.cols()});
  });
}

// The column of tiles becomes U: with those left of it done,
// U_ij = -(sum over i <= k < j of U_ik R_kj) U_jj, tile by tile.
absl::Status InverseFactor::InvertColumns(int64_t index) {
  const Tile tile = TileAt(index);
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(index, [&](int64_t above) {
    const Tile rows = TileAt(above);
    Gemm<double>({rows.size(), tile.size(), tile.begin - rows.begin},
                 {At(rows.begin, rows.begin), h_.cols()}, {At(rows.begin, tile.begin), h_.cols()},
                 {panel_.row(rows.begin), kTile});
  }));
  for (int64_t i = 0; i < tile.size(); ++i) {
    const double* inverse = inverses_.row(tile.begin + i);
    std::transform(inverse, inverse + tile.size(), small_.row(i), std::negate<>());
    std::copy_n(inverse, tile.size(), At(tile.begin + i, tile.begin));
  }
  return Gemm<double>({tile.begin, tile.size(), tile.size()}, panel_, small_,
                      {At(0, tile.begin), h_.cols()}, context_);
}

}  // namespace sparsefw::sparsegpt
