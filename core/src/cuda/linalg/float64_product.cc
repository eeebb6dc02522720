#include "core/src/cuda/linalg/float64_product.h"

#include <algorithm>
#include <type_traits>

#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kDepth = 512;  // rows of G at a time

}  // namespace

template <typename Real>
absl::Status Float64Product(const DeviceLayer<Real>& layer, const RawRows& rows, double* out,
                            const ExecutionContext& context) {
  constexpr bool kConverts = !std::is_same_v<Real, double>;
  const int64_t depth = std::min(kDepth, layer.cols);
  SPARSEFW_ASSIGN_OR_RETURN(
      auto left, DeviceBuffer<double>::Create(rows.weights.rows * depth, context.stream()));
  SPARSEFW_ASSIGN_OR_RETURN(
      auto right,
      DeviceBuffer<double>::Create(kConverts ? depth * layer.stride : 0, context.stream()));
  for (int64_t first = 0; first < layer.cols; first += depth) {
    const int64_t count = std::min(depth, layer.cols - first);
    SPARSEFW_CUDA_RETURN_IF_ERROR(
        LaunchRawColumns(rows, first, count, depth, left.data(), context.stream()));
    const Real* gram = layer.gram.data() + first * layer.stride;
    const void* stripe = gram;
    if constexpr (kConverts) {
      SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchConvert({gram, DType::kF32, count, layer.stride}, 1,
                                                  right.data(), layer.stride, context.stream()));
      stripe = right.data();
    }
    SPARSEFW_RETURN_IF_ERROR(context.Multiply({.rows = rows.weights.rows,
                                               .cols = layer.stride,
                                               .depth = count,
                                               .a = {left.data(), depth},
                                               .b = {stripe, layer.stride},
                                               .c = out,
                                               .c_stride = layer.stride,
                                               .input = CUDA_R_64F,
                                               .beta = first > 0 ? 1.0 : 0.0}));
    SPARSEFW_RETURN_IF_ERROR(context.Await());
  }
  return absl::OkStatus();
}

template <typename Real>
int64_t Float64ProductBytes(int64_t rows, int64_t cols) {
  const int64_t converted = std::is_same_v<Real, double> ? 0 : StrideOf(cols);
  return 8 * std::min(kDepth, cols) * (rows + converted);
}

template int64_t Float64ProductBytes<float>(int64_t, int64_t);
template int64_t Float64ProductBytes<double>(int64_t, int64_t);
template absl::Status Float64Product(const DeviceLayer<float>&, const RawRows&, double*,
                                     const ExecutionContext&);
template absl::Status Float64Product(const DeviceLayer<double>&, const RawRows&, double*,
                                     const ExecutionContext&);

}  // namespace sparsefw::cuda
