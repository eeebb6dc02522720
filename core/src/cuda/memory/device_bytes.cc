#include "core/src/cuda/memory/device_bytes.h"

#include <algorithm>

#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/joint/joint_search.h"
#include "core/src/cuda/linalg/mask_loss.h"
#include "core/src/cuda/memory/device_gram.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/prune/prune.h"
#include "core/src/cuda/reconstruct/reconstruct.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/select/start_choice.h"
#include "core/src/cuda/swaps/swap_refine.h"

namespace sparsefw::cuda {
namespace {

// All but the workspace, and W and G as they were given.
template <typename Real>
int64_t LargestStage(int64_t rows, int64_t cols, const MemoryRequest& request) {
  const int64_t loss = LossBytes(rows, cols, /*of_weights=*/false);
  const int64_t weights_loss = LossBytes(rows, cols, /*of_weights=*/true);
  int64_t most = std::max({kMaxAbsBytes, loss, StartChoiceBytes(rows, cols)});
  if (!request.iterates && !request.swaps && !request.reconstruct && !request.joint) return most;
  const int64_t layer = LayerBytes<Real>(rows, cols);
  most = std::max(most, layer + loss);
  if (request.iterates) {
    most = std::max(most, layer + FrankWolfeBytes<Real>(rows, cols) +
                              std::max({loss, LossChangeBytes(rows, cols),
                                        FrankWolfePanelBytes<Real>(rows, cols)}));
  }
  if (request.swaps) most = std::max(most, layer + RefineBytes<Real>(rows, cols));
  if (request.reconstruct) {
    most = std::max(most, layer + std::max(ReconstructBytes<Real>(rows, cols, /*guessed=*/false),
                                           weights_loss));
  }
  if (request.joint) {
    most = std::max(most, layer + std::max(JointSearchBytes<Real>(rows, cols), weights_loss));
  }
  return most;
}

}  // namespace

int64_t WorkspaceBytes(int64_t rows, int64_t cols) {
  const bool small = rows * cols < (int64_t{1} << 20);
  return small ? kSmallWorkspaceBytes : kWorkspaceBytes;
}

int64_t PeakBytes(int64_t rows, int64_t cols, const MemoryRequest& request) {
  const Precision chosen = request.precision == Precision::kAuto
                               ? PrecisionFor(rows, cols, request.product_precision)
                               : request.precision;
  const int64_t method = request.method == WeightMethod::kAlps
                             ? AlpsDeviceBytes(rows, cols)
                             : SparseGptDeviceBytes(rows, cols, request.pattern, request.sparsegpt);
  const int64_t pruned =
      request.prunes ? std::max(method, LossBytes(rows, cols, /*of_weights=*/true)) : int64_t{0};
  const bool shared = request.device_gram && !request.shrinks;
  const int64_t gram = shared ? 0 : CudaGramBytes(cols, request.gram);
  const int64_t weights = rows * cols * static_cast<int64_t>(SizeOf(request.weights));
  return WorkspaceBytes(rows, cols) + gram + weights + DeviceSaliency::Bytes(rows, cols) +
         std::max(pruned, chosen == Precision::kFloat64 ? LargestStage<double>(rows, cols, request)
                                                        : LargestStage<float>(rows, cols, request));
}

}  // namespace sparsefw::cuda
