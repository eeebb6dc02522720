// Where a solve begins, chosen on the device (StartChoice), and the saliency that it needs.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_START_CHOICE_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_START_CHOICE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/raw_matrix.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/cuda/select/select_scores.h"
#include "sparsefw/backend.h"
#include "sparsefw/saliency.h"

namespace sparsefw::cuda {

// A SaliencySource of W, or of scores, for kernels.
//
// Memory: what it was made of must outlive it
// Threads: one at a time
class DeviceSaliency {
 public:
  // weights: W on the device
  // Errors: ResourceExhausted (OUT_OF_MEMORY), what went wrong on the device
  static absl::StatusOr<DeviceSaliency> Upload(const SaliencySource& source,
                                               const RawMatrix& weights,
                                               const ExecutionContext& context);

  // [rows, StrideOf(cols)]; the padding has no value.
  // Errors: also Cancelled, where the scores are the host's
  absl::StatusOr<DeviceBuffer<float>> Scores(const ExecutionContext& context) const;
  // The source must have terms.
  const SalientWeights& view() const { return view_; }
  // On the device, at most.
  static int64_t Bytes(int64_t rows, int64_t cols) {
    return int64_t{sizeof(double)} * (2 * cols + rows);
  }

 private:
  ConstMatrixView given_;  // the host's scores; empty where there are terms
  DeviceBuffer<double> terms_;
  SalientWeights view_;
};

// LaunchSelectSalient with memory of its own: bits [rows, StrideOf(cols) / 32]. Rows of
// salient.weights may have padding, which `among` must leave out then.
// Errors: ResourceExhausted (OUT_OF_MEMORY), what went wrong on the device
absl::StatusOr<DeviceBuffer<BitWord>> SelectSalient(const SalientWeights& salient, int64_t cols,
                                                    const BitWord* among, const Groups& groups,
                                                    const ExecutionContext& context);

// Fills the masks of problem.choice. Waits for the stream.
// Errors: Cancelled, ResourceExhausted (OUT_OF_MEMORY), what went wrong on the device
absl::Status ChooseStart(const EngineProblem& problem, const DeviceSaliency& saliency,
                         const ExecutionContext& context);
// Bytes on the device that either takes.
int64_t StartChoiceBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_START_CHOICE_H_
