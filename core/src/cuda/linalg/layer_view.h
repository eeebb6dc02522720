// W and G on the device as kernels' sources see them: DeviceLayer (device_layer.h) owns them.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_VIEW_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_VIEW_H_

#include <cstdint>

namespace sparsefw::cuda {

// Views of device memory; no ownership. Padded rows: padded_rows.h.
template <typename Real>
struct LayerView {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  const Real* weights = nullptr;  // [rows, stride]
  const Real* gram = nullptr;     // [cols, stride]
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_LAYER_VIEW_H_
