// The triangular factor of the inverse of a positive definite matrix.
//
//   H^-1 = U^T U,  U = R^-1,  H = R R^T,  U and R upper triangular
//
// U is the upper Cholesky factor of H^-1, which is never formed.
#ifndef SPARSEFW_CORE_SRC_SPARSEGPT_INVERSE_FACTOR_H_
#define SPARSEFW_CORE_SRC_SPARSEGPT_INVERSE_FACTOR_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::sparsegpt {

// Where a matrix turned out not to be positive definite.
struct FailedPivot {
  int64_t column = 0;
  double pivot = 0;     // what is left of the diagonal there
  double diagonal = 0;  // the diagonal it started from
};

// In tiles of 128 columns, from the last to the first. The tiles below the
// diagonal keep H, so that it can be factorised again with more on its
// diagonal. Not thread-safe.
class InverseFactor {
 public:
  // Shapes:  h [size, stride], stride >= size, symmetric; outlives this object,
  //          which from now on writes to it
  // Memory:  4 * 128 * size doubles
  InverseFactor(Matrix<double>& h, int64_t size, const ParallelContext& context);

  // Factorises H + added * I and puts U in the upper triangle of h; what is
  // below the diagonal means nothing. Returns the pivot that was not positive,
  // or nothing when all were; may be called again after a failure.
  //
  // Numeric: float64; the same bits for any number of threads. A pivot is
  //          positive from size * 2^-52 of its diagonal on.
  // Cost:    2/3 size^3 flops
  // Errors:  Cancelled
  absl::StatusOr<std::optional<FailedPivot>> Factorize(double added);

 private:
  struct Tile {
    int64_t begin;
    int64_t end;
    int64_t size() const { return end - begin; }
  };
  int64_t tiles() const;
  Tile TileAt(int64_t index) const;
  double* At(int64_t row, int64_t col) { return h_.row(row) + col; }

  absl::Status Restore(double added);
  std::optional<FailedPivot> FactorizeDiagonal(Tile tile, double added);
  void InvertDiagonal(Tile tile);
  absl::Status EliminateTile(int64_t index);
  absl::Status InvertColumns(int64_t index);

  Matrix<double>& h_;
  const int64_t size_;
  const ParallelContext& context_;
  Matrix<double> diagonal_;    // [size, 128]: the diagonal tiles of H
  Matrix<double> inverses_;    // [size, 128]: those of U
  Matrix<double> panel_;       // [size, 128]: one column of tiles
  Matrix<double> transposed_;  // [128, size]: minus its transpose
  Matrix<double> small_;       // [128, 128]
};

}  // namespace sparsefw::sparsegpt

#endif  // SPARSEFW_CORE_SRC_SPARSEGPT_INVERSE_FACTOR_H_
