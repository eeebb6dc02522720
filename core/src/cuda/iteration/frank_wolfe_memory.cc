// Allocates the device memory of an iteration, and estimates its size.
#include <algorithm>
#include <utility>

#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/shared_limit.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

// M_0: the kept weights that are not fixed.
Mask WithoutFixed(const Mask& warm, const Mask& fixed) {
  Mask result = warm;
  for (int64_t row = 0; row < warm.rows(); ++row) {
    std::transform(warm.row(row), warm.row(row) + warm.row_bytes(), fixed.row(row), result.row(row),
                   [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a & ~b); });
  }
  return result;
}

}  // namespace

template <typename Real>
absl::Status FrankWolfe<Real>::Allocate(const StartPoint& start) {
  const cudaStream_t stream = context_.stream();
  const int64_t size = layer_.size();
  Buffers& b = buffers_;
  SPARSEFW_ASSIGN_OR_RETURN(b.product, DeviceBuffer<Real>::Zeroed(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.vertex_product, DeviceBuffer<Real>::Zeroed(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.entries, DeviceBuffer<Real>::Create(size, stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.fixed, UploadMask(start.fixed, stream));
  const Mask relaxed = WithoutFixed(start.warm, start.fixed);
  SPARSEFW_ASSIGN_OR_RETURN(b.previous, UploadMask(relaxed, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));  // the copies read the masks
  SPARSEFW_ASSIGN_OR_RETURN(b.vertex,
                            DeviceBuffer<BitWord>::Zeroed(layer_.rows * layer_.words(), stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.state, DeviceBuffer<StepState>::Create(1, stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.selection, DeviceBuffer<Selection>::Zeroed(1, stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.histogram, DeviceBuffer<unsigned>::Zeroed(kDigitBins + 1, stream));
  const Groups groups = GroupsOf(start.pattern, layer_.rows, layer_.cols);
  SPARSEFW_ASSIGN_OR_RETURN(b.window, DeviceBuffer<WindowPass>::Create(1, stream));
  if (groups.whole_matrix) {
    SPARSEFW_ASSIGN_OR_RETURN(b.inside,
                              DeviceBuffer<BitWord>::Create(layer_.rows * layer_.words(), stream));
  }
  SPARSEFW_ASSIGN_OR_RETURN(b.partial, DeviceBuffer<double>::Create(
                                           3 * layer_.rows * ColumnChunks(layer_.stride), stream));
  SPARSEFW_ASSIGN_OR_RETURN(b.row_sums, DeviceBuffer<double>::Create(RowSums(layer_.rows), stream));
  SPARSEFW_ASSIGN_OR_RETURN(auto product,
                            Product::Create(layer_, PanelRows(layer_.rows), Product::Use::kOperand,
                                            forms_.precision, context_.product(), stream));
  product_.emplace(std::move(product));
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t shared_bytes, SharedBytesForRows());
  it_ = {.rows = layer_.rows,
         .cols = layer_.cols,
         .stride = layer_.stride,
         .groups = groups,
         .free_total = groups.total_kept - start.fixed.CountKept(),
         .shared_bytes = shared_bytes,
         .weights = layer_.weights.data(),
         .gram = layer_.gram.data(),
         .product = b.product.data(),
         .vertex_product = b.vertex_product.data(),
         .entries = b.entries.data(),
         .fixed = b.fixed.data(),
         .previous = b.previous.data(),
         .vertex = b.vertex.data(),
         .state = b.state.data(),
         .scratch = {b.selection.data(), b.histogram.data(), b.histogram.data() + kDigitBins,
                     b.window.data(), b.inside.data()},
         .partial = b.partial.data(),
         .row_sums = b.row_sums.data()};
  return absl::OkStatus();
}

template <typename Real>
int64_t FrankWolfeBytes(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  const int64_t matrices = 3 * int64_t{sizeof(Real)} * rows * stride;
  const int64_t bits = 4 * rows * stride / 8;
  const int64_t partial = 8 * (3 * rows * ColumnChunks(stride) + RowSums(rows));
  const int64_t scratch =
      sizeof(StepState) + sizeof(Selection) + sizeof(WindowPass) + 4 * (kDigitBins + 1);
  const int64_t saliency = 4 * rows * stride;
  const int64_t product =
      SymmetricProduct<Real>::Bytes(PanelRows(rows), cols, SymmetricProduct<Real>::Use::kOperand);
  return matrices + bits + partial + scratch + saliency + product;
}

template <typename Real>
int64_t FrankWolfePanelBytes(int64_t rows, int64_t cols) {
  return int64_t{sizeof(Real)} * PanelRows(rows) * StrideOf(cols);
}

template absl::Status FrankWolfe<float>::Allocate(const StartPoint&);
template absl::Status FrankWolfe<double>::Allocate(const StartPoint&);
template int64_t FrankWolfeBytes<float>(int64_t, int64_t);
template int64_t FrankWolfeBytes<double>(int64_t, int64_t);
template int64_t FrankWolfePanelBytes<float>(int64_t, int64_t);
template int64_t FrankWolfePanelBytes<double>(int64_t, int64_t);

}  // namespace sparsefw::cuda
