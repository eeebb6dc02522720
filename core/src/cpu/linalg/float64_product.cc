#include "core/src/cpu/linalg/float64_product.h"

#include <algorithm>

#include "core/src/linalg/blas.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kDepth = 512;  // rows of G at a time
constexpr int64_t kFillRows = 16;

}  // namespace

template <typename Real>
absl::Status Float64Product(const ScaledLayer<Real>& layer,
                            absl::FunctionRef<void(int64_t, int64_t, int64_t, double*)> fill,
                            Matrix<double>& out, const ParallelContext& context) {
  const int64_t depth = std::min(kDepth, layer.cols);
  Matrix<double> left(out.rows(), depth);
  Matrix<double> right(depth, layer.stride());
  for (int64_t first = 0; first < layer.cols; first += depth) {
    const int64_t count = std::min(depth, layer.cols - first);
    SPARSEFW_RETURN_IF_ERROR(context.ForEachRow(
        {out.rows(), kFillRows}, [&](int64_t row) { fill(row, first, count, left.row(row)); }));
    SPARSEFW_RETURN_IF_ERROR(context.ForEachRow({count, kFillRows}, [&](int64_t row) {
      std::copy_n(layer.gram.row(first + row), layer.stride(), right.row(row));
    }));
    SPARSEFW_RETURN_IF_ERROR(Gemm<double>(
        {.rows = out.rows(), .cols = layer.stride(), .depth = count, .accumulate = first > 0}, left,
        right, out, context));
  }
  return absl::OkStatus();
}

int64_t Float64ProductBytes(int64_t rows, int64_t cols) {
  const int64_t depth = std::min(kDepth, cols);
  return 8 * depth * (rows + (cols + 63) / 64 * 64);
}

template absl::Status Float64Product(const ScaledLayer<float>&,
                                     absl::FunctionRef<void(int64_t, int64_t, int64_t, double*)>,
                                     Matrix<double>&, const ParallelContext&);
template absl::Status Float64Product(const ScaledLayer<double>&,
                                     absl::FunctionRef<void(int64_t, int64_t, int64_t, double*)>,
                                     Matrix<double>&, const ParallelContext&);

}  // namespace sparsefw::cpu
