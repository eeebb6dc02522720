// SparseGPT and ALPS on the device: sparsefw/sparsegpt.h and sparsefw/alps.h say what they compute,
// core/src/sparsegpt and core/src/alps do it on the CPU. The rules that decide (damping, rho,
// counts of blocks) are shared with them.
#ifndef SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_H_
#define SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// The layer is the caller's to give: it is written to.
struct PruneInputs {
  DeviceLayer<double> layer;
  Pattern pattern;
  Scale scale;
  DType dtype;  // of W
};

// Numeric: float64; the same bits at every run on the same device
// Cost:    4/3 cols^3 + rows * cols^2 flops and SparseGPT's tiles; ALPS 2 rows cols^2 an iteration
//          and 10/3 cols^3 for every rho
// Stop:    looked at, as is request.out_of_time, before and after every factorisation, every 8
//          tiles of columns, every third iteration of ALPS and every step on its support
// Errors:  Cancelled; InvalidArgument (GRAM_NOT_POSITIVE_DEFINITE, NON_FINITE);
//          ResourceExhausted, what went wrong on the device
absl::StatusOr<PrunedWeights> PruneBySparseGpt(PruneInputs inputs, const PruneRequest& request,
                                               const ExecutionContext& context);
absl::StatusOr<PrunedWeights> PruneByAlps(PruneInputs inputs, const PruneRequest& request,
                                          const ExecutionContext& context);

// Device bytes of these, the layer included.
int64_t SparseGptDeviceBytes(int64_t rows, int64_t cols, const Pattern& pattern,
                             const SparseGptOptions& options);
int64_t AlpsDeviceBytes(int64_t rows, int64_t cols);

// What both methods share follows. Looks at stop and deadline; waits for the stream.
// Errors: Cancelled
absl::Status CheckLimits(const PruneRequest& request, const ExecutionContext& context);

// Mask and weights from what is kept; norms may be null. Errors: NON_FINITE
absl::StatusOr<PrunedWeights> DownloadPruned(const PruneInputs& inputs, const double* weights,
                                             const double* norms, const BitWord* kept,
                                             double damping, const ExecutionContext& context);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_PRUNE_PRUNE_H_
