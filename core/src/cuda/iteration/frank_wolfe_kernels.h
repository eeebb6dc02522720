// The kernels of one Frank-Wolfe iteration and the device memory they work on. docs/numerics.md has
// the mathematics.
//
// An iteration, V_t and a_t known:
//   1. LaunchVertexUpdate   U_t and b_t from the coordinates where V_t differs
//                           from V_{t-1}; then V_{t-1} := V_t and eta_t, L_{t+1}
//   2. LaunchSelect         E_{t+1} = E_t + eta_t (U_t - E_t), V_{t+1}, a_{t+1}
//   3. LaunchFinishStep     g_{t+1} and the bound
// All of them do nothing once StepState::stopped is set. None has arguments that change from one
// iteration to the next, so that the three can be captured once as a graph.
//
// Determinism: sums are float64, over blocks in a fixed order; atomics count
// only, in integers. The same input gives the same bits on the same device.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_KERNELS_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/base/host_device.h"
#include "core/src/cuda/iteration/step_state.h"
#include "core/src/cuda/linalg/half_split.h"
#include "core/src/cuda/linalg/padded_rows.h"
#include "core/src/cuda/runtime/cuda_error.h"
#include "core/src/cuda/select/score_window.h"
#include "core/src/cuda/select/selection_keys.h"
#include "sparsefw/kernel_types.h"

namespace sparsefw::cuda {

// Digits of the selection over the whole matrix.
inline constexpr int kDigitWidth = 11;
inline constexpr int kDigitBins = 1 << kDigitWidth;

// Columns that a block of the passes over the matrix takes.
inline constexpr int64_t kColumnsOfBlock = 1024;

inline int64_t ColumnChunks(int64_t stride) {
  return (stride + kColumnsOfBlock - 1) / kColumnsOfBlock;
}

// Words of bits that a block of the passes of a selection over the whole matrix
// takes, which see it as one long row.
inline constexpr int64_t kWordsOfBlock = 256;

inline int64_t MarkBlocks(int64_t entries) {
  return (entries / 32 + kWordsOfBlock - 1) / kWordsOfBlock;
}

// Scratch of a selection over the whole matrix.
struct SelectionScratch {
  Selection* selection = nullptr;
  unsigned* histogram = nullptr;  // [kDigitBins], 0 between digits
  unsigned* ticket = nullptr;     // blocks that are done with a pass; 0 between passes
  WindowPass* window = nullptr;   // where the threshold of the next vertex is looked for
  BitWord* inside = nullptr;      // [rows, stride / 32]: entries inside it
};

// Views of device memory; no ownership.
template <typename Real>
struct IterateView {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  Groups groups = {};
  int64_t free_total = 0;    // free weights to keep, of the whole matrix
  int64_t shared_bytes = 0;  // that a row may take of a block's shared memory
  const Real* weights = nullptr;
  const Real* gram = nullptr;
  Real* product = nullptr;         // E, [rows, stride]
  Real* vertex_product = nullptr;  // U, [rows, stride]
  Real* entries = nullptr;         // x of the lazy M, [rows, stride]
  const BitWord* fixed = nullptr;  // [rows, stride / 32]
  BitWord* previous = nullptr;     // V_{t-1}, without the fixed set
  BitWord* vertex = nullptr;       // V_t, without the fixed set
  StepState* state = nullptr;
  SelectionScratch scratch = {};
  double* partial = nullptr;  // [rows * ColumnChunks(stride) * 3] sums of blocks

  SPARSEFW_HOST_DEVICE int64_t words() const { return stride / 32; }
};

// Steps 1 to 3 above. kMove: E and M move by the step that was chosen; kStay:
// they are where they should be (the start, after a refresh).
enum class Motion { kMove, kStay };
template <typename Real>
CudaError LaunchVertexUpdate(const IterateView<Real>& it, cudaStream_t stream);
template <typename Real>
CudaError LaunchSelect(const IterateView<Real>& it, Motion motion, cudaStream_t stream);
template <typename Real>
CudaError LaunchFinishStep(const IterateView<Real>& it, cudaStream_t stream);

// The last part of step 1 for a U that is computed as a dense product of Point::kNextVertex
// instead: b_t = <D(V_t), U_t>, eta_t, L_{t+1}.
template <typename Real>
CudaError LaunchTakeStep(const IterateView<Real>& it, cudaStream_t stream);
// StepState::pending: how many coordinates the next step toggles.
template <typename Real>
CudaError LaunchCountToggles(const IterateView<Real>& it, cudaStream_t stream);
// b = <D(previous), U>, and L = b, as it is where M is a vertex.
template <typename Real>
CudaError LaunchVertexLoss(const IterateView<Real>& it, cudaStream_t stream);
// E and M, as part of LaunchSelect with kMove.
template <typename Real>
CudaError LaunchMove(const IterateView<Real>& it, cudaStream_t stream);

// D(previous), D(vertex) or D(M) of rows [first, first + count), [count, stride]. kNextVertex:
// V_{t-1} := V_t in these rows, and the entries of M whose bit toggles.
enum class Point { kVertex, kNextVertex, kRelaxed };
template <typename Real>
CudaError LaunchPruned(const IterateView<Real>& it, Point point, int64_t first, int64_t count,
                       const LeftOperand<Real>& out, cudaStream_t stream);
// Compares E of those rows with `dense`, D(M) G, over the free coordinates. `replace`: E
// becomes it.
template <typename Real>
CudaError LaunchCompare(const IterateView<Real>& it, int64_t first, int64_t count,
                        const Real* dense, bool replace, cudaStream_t stream);
// Adds up what LaunchCompare found in all rows: the drift and, with `replace`, L.
template <typename Real>
CudaError LaunchFinishCompare(const IterateView<Real>& it, bool replace, cudaStream_t stream);

// Options of LaunchBeginStep.
struct StepOptions {
  bool line_search = false;
  double rel_gap = 0;
};
CudaError LaunchBeginStep(StepState* state, const StepOptions& options, cudaStream_t stream);
// The start: the state of iteration 0 but for the losses, and M_0 = `previous`.
template <typename Real>
CudaError LaunchBeginIteration(const IterateView<Real>& it, cudaStream_t stream);

// round(M_t) with the fixed set into `mask`, ties by `saliency` [rows, stride]; it.partial begins
// with ||M_t - round(M_t)||_1 of every block that RoundingBlocks counts.
template <typename Real>
CudaError LaunchRound(const IterateView<Real>& it, const float* saliency, BitWord* mask,
                      cudaStream_t stream);
template <typename Real>
int64_t RoundingBlocks(const IterateView<Real>& it) {
  return it.groups.whole_matrix ? MarkBlocks(it.rows * it.stride) : it.rows;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_FRANK_WOLFE_KERNELS_H_
