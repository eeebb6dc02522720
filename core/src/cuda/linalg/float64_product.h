// D G in float64, whatever G is held in.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_FLOAT64_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_FLOAT64_PRODUCT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"

namespace sparsefw::cuda {

// out = D G, D that of `rows`.
//
// Shapes:  out [rows, layer.stride], D [rows, layer.cols], any number of rows
// Numeric: G is converted exactly, every product and sum is in float64
// Memory:  8 * 512 * (rows + layer.stride) bytes on the device
// Stop:    looked at after every 512 rows of G
// Cost:    2 * rows * cols^2 flops in float64
// Errors:  Cancelled, ResourceExhausted, what went wrong on the device
template <typename Real>
absl::Status Float64Product(const DeviceLayer<Real>& layer, const RawRows& rows, double* out,
                            const ExecutionContext& context);

// Device bytes while it runs.
template <typename Real>
int64_t Float64ProductBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_FLOAT64_PRODUCT_H_
