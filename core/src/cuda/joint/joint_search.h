// The joint search on the device: sparsefw/joint.h says what it computes, joint_batch.h on what.
//
// Rows are searched in batches. A batch goes through its passes together, with the rules of
// core/src/joint/joint_rules.h; a row that finds no exchange waits for the others. Then all look
// at their excluded columns.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_SEARCH_H_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_SEARCH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "core/src/linalg/scale.h"
#include "sparsefw/backend.h"

namespace sparsefw::cuda {

// layer: scaled by NearOne(scale of the engine), `scale` here. Its diagonal is changed and put
// back.
//
// Numeric: tableaus as Real, b and the losses that decide in float64. The same bits at every run
//          on the same device, unless cut short
// Threads: `threads` of the host divide columns and take results; 0: all cores
// Memory:  JointSearchBytes
// Cost:    about n^2 |S| + |S|^3 / 3 flops a row, n columns in doubt, and n^2 twice for every
//          pass of up to 16 exchanges
// Stop:    looked at before every batch and every pass; rows not begun keep the start
template <typename Real>
absl::StatusOr<JointResult> SearchJointly(const EngineProblem& problem, DeviceLayer<Real>& layer,
                                          const Scale& scale, const Mask& start,
                                          const JointRequest& request, int threads,
                                          const ExecutionContext& context);

// Device bytes of SearchJointly beside the layer.
template <typename Real>
int64_t JointSearchBytes(int64_t rows, int64_t cols);

// Bytes of the host while it runs, without the result.
int64_t JointHostBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_SEARCH_H_
