#include "core/src/cuda/runtime/device_bytes.h"

#include <algorithm>

#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/linalg/dense_product.h"
#include "core/src/cuda/linalg/mask_loss.h"
#include "core/src/cuda/reconstruct/reconstruct.h"
#include "core/src/cuda/runtime/cuda_engine.h"
#include "core/src/cuda/runtime/device_gram.h"
#include "core/src/cuda/runtime/device_layer.h"
#include "core/src/cuda/swaps/swap_refine.h"

namespace sparsefw::cuda {
namespace {

// All but the workspace and G as it was given.
template <typename Real>
int64_t LargestStage(int64_t rows, int64_t cols, const WorkAsked& work) {
  const int64_t raw = rows * cols * static_cast<int64_t>(SizeOf(work.weights));
  const int64_t loss = MaskLossBytes(rows, cols, work.weights);
  int64_t most = std::max(raw + kMaxAbsBytes, loss);
  if (!work.iterates && !work.swaps && !work.reconstruct) return most;
  const int64_t layer = LayerBytes<Real>(rows, cols);
  most = std::max(most, layer + std::max(raw, loss));
  if (work.iterates) {
    most = std::max(most, layer + FrankWolfeBytes<Real>(rows, cols) +
                              std::max(loss, FrankWolfePanelBytes<Real>(rows, cols)));
  }
  if (work.swaps) most = std::max(most, layer + RefineBytes<Real>(rows, cols));
  if (work.reconstruct) {
    const int64_t weights_loss = LossOfWeightsBytes(rows, cols, work.weights);
    most = std::max(most, layer + std::max(ReconstructBytes<Real>(rows, cols), weights_loss));
  }
  return most;
}

}  // namespace

int64_t WorkspaceBytes(int64_t rows, int64_t cols) {
  const bool small = rows * cols < (int64_t{1} << 20);
  return small ? DenseProduct::kSmallWorkspace : DenseProduct::kWorkspace;
}

int64_t PeakBytes(int64_t rows, int64_t cols, const WorkAsked& work) {
  const Precision chosen = work.precision == Precision::kAuto
                               ? PrecisionFor(rows, cols, work.product_precision)
                               : work.precision;
  const int64_t gram = work.device_gram ? 0 : CudaGramBytes(cols, work.gram);
  return WorkspaceBytes(rows, cols) + gram +
         (chosen == Precision::kFloat64 ? LargestStage<double>(rows, cols, work)
                                        : LargestStage<float>(rows, cols, work));
}

}  // namespace sparsefw::cuda
