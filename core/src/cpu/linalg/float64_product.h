// D G in float64, whatever G is held in.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_FLOAT64_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_FLOAT64_PRODUCT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// out = D G, where fill(row, first, count, d) writes D[row, first .. first + count).
//
// Shapes:  out [rows, layer.stride()], any number of rows; D [rows, layer.cols]
// Numeric: G is converted exactly, every product and sum is in float64
// Threads: fill is called concurrently
// Memory:  Float64ProductBytes
// Cost:    2 * rows * cols^2 flops in float64
// Errors:  Cancelled
template <typename Real>
absl::Status Float64Product(const ScaledLayer<Real>& layer,
                            absl::FunctionRef<void(int64_t, int64_t, int64_t, double*)> fill,
                            Matrix<double>& out, const ParallelContext& context);

int64_t Float64ProductBytes(int64_t rows, int64_t cols);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_FLOAT64_PRODUCT_H_
