// Device memory of the joint search's batches.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_MEMORY_H_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_MEMORY_H_

#include <cstdint>

#include "core/src/cuda/joint/joint_batch.h"

namespace sparsefw::cuda {

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

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_MEMORY_H_
