// The launches around the products and factorisations of SparseGPT and ALPS: prune.h. Matrices are
// in float64, [rows, stride] with their padding 0, or [size, stride] where they are square.
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// out = matrix + added I, where `reversed` from the last row and column to the first; added I where
// matrix is null. The padding of `out` becomes 0.
CudaError LaunchShift(const double* matrix, double added, bool reversed, int64_t size,
                      int64_t stride, double* out, cudaStream_t stream);

struct SmallPivot {
  int64_t place;  // in the order of the factorisation; `size`: there is none
  double pivot;
  double diagonal;
};
// The first pivot of the lower triangular factor of what LaunchShift makes that is below
// size * 2^-52 of its diagonal; else the one at which the factorisation ended, `info` counted from
// 1, 0 where it did not.
CudaError LaunchFindSmallPivot(const double* factor, const double* matrix, double added,
                               bool reversed, int64_t size, int64_t stride, const int* info,
                               SmallPivot* found, cudaStream_t stream);

// gram(i, j) = gram(i, j) / (norms_i norms_j), `added` to its diagonal before.
CudaError LaunchNormalise(double* gram, const double* norms, double added, int64_t size,
                          int64_t stride, cudaStream_t stream);

// What the steps on the support keep of a row.
struct SupportRow {
  double squares;  // of the residual
  double wanted;   // where it is small enough
};

// Rows of a layer, by whatever the launches below read and write of them. Views of device memory.
struct AlpsRows {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  double* y = nullptr;        // B0 H
  double* b = nullptr;        // B
  double* d = nullptr;        // D; the residual of the steps on the support
  double* v = nullptr;        // V; the direction of these steps
  double* right = nullptr;    // Y - V + rho D; scores; products of the steps
  BitWord* kept = nullptr;    // the support: [rows, stride / 32]
  SupportRow* row = nullptr;  // [rows]
};

// matrix: column j times factors[j], or 0 where that is 0.
CudaError LaunchScaleColumns(double* matrix, const double* factors, int64_t rows, int64_t cols,
                             int64_t stride, cudaStream_t stream);
// to = from where `kept` has it, 0 elsewhere.
CudaError LaunchKeep(const AlpsRows& it, const BitWord* kept, const double* from, double* to,
                     cudaStream_t stream);
// right = |matrix|, or |V + rho B| / rho where matrix is null; -1 in the padding: scores.
CudaError LaunchScores(const AlpsRows& it, const double* matrix, double rho, cudaStream_t stream);
// right = Y - V + rho D.
CudaError LaunchRightSide(const AlpsRows& it, double rho, cudaStream_t stream);
// D = V / rho + B on the support, V += rho (B - D).
CudaError LaunchUpdateDual(const AlpsRows& it, double rho, cudaStream_t stream);
// *changed += the bits in which the two differ; then `checked` is `kept`.
CudaError LaunchCountChanged(const BitWord* kept, BitWord* checked, int64_t words,
                             unsigned long long* changed, cudaStream_t stream);

// The residual Y - right on the support, which is the first direction. *unfinished += the rows
// whose residual is above `tolerance` of where it would be at 0.
CudaError LaunchBeginSupport(const AlpsRows& it, double tolerance, unsigned long long* unfinished,
                             cudaStream_t stream);
// A step of conjugate gradients in every row, right the product of its direction; counts as before.
CudaError LaunchSupportStep(const AlpsRows& it, unsigned long long* unfinished,
                            cudaStream_t stream);

// Columns of a tile at most: a warp has them in registers.
inline constexpr int kTileColumns = 128;

// SparseGPT's sweep: the columns [first, first + width) of every row.
struct SweepTile {
  int64_t rows = 0;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t width = 0;
  double* weights = nullptr;       // [rows, stride]
  const double* factor = nullptr;  // U, [>= first + width, stride]
  // The columns that are kept, where they were chosen before: bits of the tile's columns from word
  // 0 of each row on, rows `chosen_words` apart.
  const BitWord* chosen = nullptr;
  int64_t chosen_words = 0;
  // Else they are chosen here: `keep` of every `group` columns, whole groups of a tile.
  int group = 0;
  int keep = 0;
  BitWord* mask = nullptr;   // [rows, stride / 32]: the bits of what is kept are set
  double* errors = nullptr;  // [rows, kTileColumns]: 0 where kept
};
// Prunes a tile of up to kTileColumns columns and lets those that follow in it make up for it.
CudaError LaunchSweepTile(const SweepTile& tile, cudaStream_t stream);

// scores [rows, StrideOf(width)] = |w_ij| / U_jj, -1 in the padding; any width.
CudaError LaunchSweepScores(const SweepTile& block, double* scores, cudaStream_t stream);

// out [rows, cols] = weights / norms, times `factor`, on `kept`, rounded to `dtype`; 0 elsewhere.
struct NewWeights {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  const double* weights = nullptr;
  const double* norms = nullptr;  // of the columns; may be null
  const BitWord* kept = nullptr;
  double factor = 1;
  DType dtype = DType::kF32;
  float* out = nullptr;
};
CudaError LaunchNewWeights(const NewWeights& args, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_KERNELS_H_
