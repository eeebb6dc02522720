// Panels of the Cholesky factor, 64 rows each, from those above them.
#ifndef SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_FACTOR_H_
#define SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_FACTOR_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/runtime/cuda_error.h"

namespace sparsefw::cuda {

// Column tiles of a panel: `square` of them from the panel's own columns on, then those of Z from
// `first` on. Columns of Z outside [first, end) are left alone.
struct PanelTiles {
  int64_t square = 0;
  int64_t first = 0;
  int64_t end = 0;
  int64_t of_z = 0;
  bool border = false;  // only rows of which columns enter
};

// The panel of rows [panel, panel + kPanelRows); of a border only its columns.
template <typename Real>
CudaError LaunchPanel(const JointBatch<Real>& batch, int64_t panel, const PanelTiles& tiles,
                      cudaStream_t stream);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_JOINT_JOINT_FACTOR_H_
