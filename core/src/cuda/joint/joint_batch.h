// The memory of the joint search for a batch of rows, and the launches that work on it.
//
// Every row of the batch has the same layout. Its columns that stay are eliminated first, F, then
// the kept ones that may leave, K, by one Cholesky factor of
//
//     [ H_FF H_FK | 0  H_FO  b_F ]
//     [ H_KF H_KK | I  H_KO  b_K ]
//
// Where a row has fewer of them than the batch has room for, the rest are gaps: columns of the
// identity, which touch nothing. With the factor's rows R and Z = [R_K^-T  Y_O  y] beside it the
// swept tableau is one product more:
//
//     A_KK = -Z_K^T Z_K,   A_KO = Z_K^T Z_O,   A_OO = H_OO - Y_O^T Y_O,   the targets likewise
//
// joint_search.h and core/src/cpu/joint/tableau.h say what it is used for.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_BATCH_H_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_BATCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

inline constexpr int64_t kPanelRows = 64;  // of the factor at a time
inline constexpr int kPassSweeps = 32;     // at most, two for each exchange
inline constexpr int kPendingSweeps = 64;  // kept between two products
inline constexpr int64_t kRoomOfRow = 64;  // columns that a row admits at once
inline constexpr int64_t kRoomOfBatch = 128;

// What is known of a row on the host and on the device.
struct JointRowProgress {
  double loss;       // L*; the energy w H w^T before it is begun
  double tolerance;  // what an exchange must gain
  int64_t exchanges;
  int pending;   // sweeps kept after the last pass
  int done;      // no exchange was found since columns were admitted last
  int entering;  // columns admitted last
  int row;       // of the layer
};

// Positions of the tableau: [0, kept) K, [kept, target) O, [room, end) what is admitted. At the
// target is the column of b; as a position it is a gap.
struct JointSizes {
  int64_t fixed = 0;  // whole panels
  int64_t kept = 0;   // whole panels
  int64_t target = 0;
  int64_t room = 0;  // a multiple of 4, as the end is
  int64_t end = 0;
  int64_t span = 0;       // columns of the tableau and of Z, with what tiles read beyond
  int64_t positions = 0;  // rows of the tableau, whole panels
  SPARSEFW_HOST_DEVICE int64_t eliminated() const { return fixed + kept; }
  SPARSEFW_HOST_DEVICE int64_t width() const { return fixed + kept + span; }

  static JointSizes For(int64_t fixed, int64_t kept, int64_t outside);
};

// Views of device memory; no ownership.
template <typename Real>
struct JointBatch {
  int64_t count = 0;  // rows
  int64_t cols = 0;
  int64_t stride = 0;  // of gram and of what has a column of the layer each
  int64_t group_cols = 0;
  JointSizes sizes;
  const Real* gram = nullptr;        // H
  const double* products = nullptr;  // [rows of the layer, stride]: b
  Real* factor = nullptr;            // [count, eliminated, width]
  Real* tableau = nullptr;           // [count, positions, span]
  Real* pending = nullptr;           // [count, kPendingSweeps, span]
  Real* pending_factors = nullptr;   // [count, kPendingSweeps]
  Real* entering = nullptr;          // [count, positions, kPanelRows]: of the border
  Real* known = nullptr;             // [count, width]: weights while they are solved
  Real* targets = nullptr;           // [count, span], as are these four
  Real* diagonals = nullptr;
  Real* floors = nullptr;  // infinite where a position cannot enter
  Real* column = nullptr;
  double* gains = nullptr;
  Real* solution = nullptr;         // [count, stride]: the weights
  Real* rounded = nullptr;          // [count, stride]: their products with H
  double* bounds = nullptr;         // [count, stride]: gains of excluded columns
  int* columns = nullptr;           // [count, width]: of the layer, -1 in gaps
  int* places = nullptr;            // [count, stride]: the position; kExcludedPlace; kNoPlace
  int* admitted = nullptr;          // [count, kRoomOfRow]
  unsigned char* inside = nullptr;  // [count, span]
  unsigned char* kept = nullptr;    // [count, stride]: of the layer
  JointRowProgress* rows = nullptr;
  int* counter = nullptr;  // one
};
inline constexpr int kExcludedPlace = -1;
inline constexpr int kNoPlace = -2;

// As many rows as fill a large device's memory to a part that leaves room for other jobs; more
// than that do not use it better.
inline constexpr int64_t kBatchBytes = int64_t{8} << 30;
inline constexpr int64_t kMostBatchRows = 512;

// Places the arrays of a batch with `count` rows and the sizes given from `memory` on, aligned.
// Returns their bytes. The other members are left alone.
template <typename Real>
int64_t LayOut(unsigned char* memory, JointBatch<Real>& batch);

// Bytes for the batches of a layer: for one row of any window, for kMostBatchRows of the widest
// window that defaults give, at most kBatchBytes. Batches of wider windows have fewer rows.
template <typename Real>
int64_t BatchBytes(int64_t rows, int64_t cols);

// The most rows of these sizes that fit `bytes`; at least one fits BatchBytes.
template <typename Real>
int64_t RowsThatFit(const JointSizes& sizes, int64_t cols, int64_t bytes);

// Panels of the factor, one after the other, then the tableau, then what is known of it.
template <typename Real>
CudaError LaunchBuild(const JointBatch<Real>& batch, cudaStream_t stream);

// Column tiles of a panel: `square` of them from the panel's own columns on, then those of Z from
// `first` on. Columns of Z outside [first, end) are left alone.
struct PanelTiles {
  int64_t square = 0;
  int64_t first = 0;
  int64_t end = 0;
  int64_t of_z = 0;
  bool border = false;  // only rows of which columns enter
};

// A part of LaunchBuild and LaunchBorder: the panel of the factor with the rows [panel, panel +
// kPanelRows); of a border only its columns.
template <typename Real>
CudaError LaunchPanel(const JointBatch<Real>& batch, int64_t panel, const PanelTiles& tiles,
                      cudaStream_t stream);

// The best gain of every position that may leave; then exchanges of every row, most gain first;
// then their terms into the tableau, of groups only where the next pass might have no room for
// its own: few entries of the tableau are looked at there. *counter: rows that exchanged something.
template <typename Real>
CudaError LaunchPass(const JointBatch<Real>& batch, cudaStream_t stream);

// solution and kept.
template <typename Real>
CudaError LaunchWeights(const JointBatch<Real>& batch, cudaStream_t stream);

// All terms of the rows that columns enter, into their tableaus.
template <typename Real>
CudaError LaunchFlush(const JointBatch<Real>& batch, cudaStream_t stream);

// Chooses excluded columns that gain more than the cheapest kept weight of their group costs, at
// most `room` a row. *counter: the most that a row chose. `rounded` is given.
template <typename Real>
CudaError LaunchAdmit(const JointBatch<Real>& batch, int64_t room, cudaStream_t stream);

// Puts them at the positions [first, first + most), first a multiple of 4.
template <typename Real>
CudaError LaunchBorder(const JointBatch<Real>& batch, int64_t first, int64_t most,
                       cudaStream_t stream);

// bounds [rows, stride] = residual^2 / G_jj, from residuals [rows, stride].
template <typename Real>
CudaError LaunchGainBounds(const Real* gram, const double* residuals, int64_t rows, int64_t cols,
                           int64_t stride, float* bounds, cudaStream_t stream);

// squares[row] = sum over j of w_j^2 H_jj.
template <typename Real>
CudaError LaunchWeightedSquares(const Real* gram, const Real* weights, int64_t rows, int64_t cols,
                                int64_t stride, double* squares, cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_BATCH_H_
