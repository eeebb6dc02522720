// The device memory of an iteration, and the copies of what the coming iterations depend on. These
// are all matrices, StepState, the toggles of past epochs, which choose how U is updated, and the
// window of the selection. The order of a sum depends on whether that was guessed right.
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/memory/staged_upload.h"
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

// A field from device memory, by way of `scratch`.
template <typename T>
absl::Status SaveBuffer(std::string_view name, const T* from, int64_t size, StateWriter& writer,
                        std::vector<std::byte>& scratch, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(size) * sizeof(T);
  SPARSEFW_RETURN_IF_ERROR(writer.BeginField(name, bytes));
  const auto* source = reinterpret_cast<const std::byte*>(from);
  for (size_t done = 0; done < bytes;) {
    const size_t count = std::min(scratch.size(), bytes - done);
    SPARSEFW_RETURN_IF_ERROR(CopyAndWait(scratch.data(), source + done, static_cast<int64_t>(count),
                                         cudaMemcpyDeviceToHost, stream));
    SPARSEFW_RETURN_IF_ERROR(writer.Write(std::span(scratch).first(count)));
    done += count;
  }
  return absl::OkStatus();
}

// The bytes go up as rows of floats: nothing but their size matters.
template <typename T>
absl::Status RestoreBuffer(std::string_view name, T* to, int64_t size, StateReader& reader,
                           const ExecutionContext& context) {
  static_assert(sizeof(T) % sizeof(float) == 0);
  const auto bytes = static_cast<size_t>(size) * sizeof(T);
  SPARSEFW_ASSIGN_OR_RETURN(const std::span<const std::byte> field, reader.Field(name, bytes));
  if (field.empty()) return absl::OkStatus();
  const ConstMatrixView row(field.data(), DType::kF32, 1,
                            static_cast<int64_t>(bytes / sizeof(float)));
  return StagedUpload(row, to, context.stream(), context.stop());
}

}  // namespace

template <typename Real>
void LayOut(IterateView<Real>& it, DeviceArrays& arrays) {
  const int64_t size = it.rows * it.stride;
  arrays.AddZeroed(size, it.product);
  arrays.AddZeroed(size, it.vertex_product);
  arrays.Add(size, it.entries);
  arrays.AddZeroed(size / 32, it.vertex);
  arrays.Add(1, it.state);
  arrays.AddZeroed(1, it.scratch.selection);
  arrays.AddZeroed(kDigitBins, it.scratch.histogram);
  arrays.AddZeroed(1, it.scratch.ticket);
  arrays.Add(1, it.scratch.window);
  if (it.groups.whole_matrix) arrays.Add(size / 32, it.scratch.inside);
  arrays.Add(3 * it.rows * ColumnChunks(it.stride), it.partial);
}

template <typename Real>
absl::Status FrankWolfe<Real>::Allocate(const StartPoint& start) {
  const cudaStream_t stream = context_.stream();
  SPARSEFW_ASSIGN_OR_RETURN(fixed_, UploadMask(start.fixed, stream));
  const Mask relaxed = WithoutFixed(start.warm, start.fixed);
  SPARSEFW_ASSIGN_OR_RETURN(previous_, UploadMask(relaxed, stream));
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));  // the copies read the masks
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t shared_bytes, SharedBytesForRows());
  const Groups groups = GroupsOf(start.pattern, layer_.rows, layer_.cols);
  it_ = {.rows = layer_.rows,
         .cols = layer_.cols,
         .stride = layer_.stride,
         .groups = groups,
         .free_total = groups.total_kept - start.fixed.CountKept(),
         .shared_bytes = shared_bytes,
         .weights = layer_.weights.data(),
         .gram = layer_.gram.data(),
         .fixed = fixed_.data(),
         .previous = previous_.data()};
  LayOut(it_, arrays_);
  SPARSEFW_RETURN_IF_ERROR(arrays_.status());
  SPARSEFW_ASSIGN_OR_RETURN(auto product,
                            Product::Create(layer_, PanelRows(layer_.rows), Product::Use::kOperand,
                                            forms_.precision, context_));
  product_.emplace(std::move(product));
  return absl::OkStatus();
}

template <typename Real>
int64_t FrankWolfeBytes(int64_t rows, int64_t cols) {
  IterateView<Real> it = {.rows = rows, .cols = cols, .stride = StrideOf(cols)};
  it.groups.whole_matrix = true;  // which takes most
  DeviceArrays arrays;
  LayOut(it, arrays);
  const int64_t size = rows * it.stride;
  const int64_t masks = 2 * size / 8;
  const int64_t saliency = 4 * size;
  const int64_t product =
      SymmetricProduct<Real>::Bytes(PanelRows(rows), cols, SymmetricProduct<Real>::Use::kOperand);
  return arrays.bytes() + masks + saliency + product;
}

template <typename Real>
int64_t FrankWolfePanelBytes(int64_t rows, int64_t cols) {
  return int64_t{sizeof(Real)} * PanelRows(rows) * StrideOf(cols);
}

// Buffers by name, in the order of the checkpoint: visit(name, pointer, size).
template <typename Real>
template <typename Visit>
absl::Status FrankWolfe<Real>::VisitState(const Visit& visit) {
  const int64_t words = layer_.rows * layer_.words();
  SPARSEFW_RETURN_IF_ERROR(visit("cuda_state", it_.state, 1));
  SPARSEFW_RETURN_IF_ERROR(visit("window", it_.scratch.window, 1));
  SPARSEFW_RETURN_IF_ERROR(visit("entries", it_.entries, layer_.size()));
  SPARSEFW_RETURN_IF_ERROR(visit("last_vertex", it_.previous, words));
  SPARSEFW_RETURN_IF_ERROR(visit("vertex", it_.vertex, words));
  SPARSEFW_RETURN_IF_ERROR(visit("product", it_.product, layer_.size()));
  return visit("vertex_product", it_.vertex_product, layer_.size());
}

template <typename Real>
absl::Status FrankWolfe<Real>::Save(StateWriter& writer) {
  if (unfinished_) return absl::FailedPreconditionError("a step was not finished");
  const ToggleHistory::State toggles = toggles_.state();
  SPARSEFW_RETURN_IF_ERROR(writer.Field("toggles", BytesOf(toggles)));
  std::vector<std::byte> scratch(kSavedPieceBytes);
  return VisitState([&](std::string_view name, const auto* from, int64_t size) {
    return SaveBuffer(name, from, size, writer, scratch, context_.stream());
  });
}

template <typename Real>
absl::Status FrankWolfe<Real>::RestoreFrom(StateReader& reader) {
  const cudaStream_t stream = context_.stream();
  ToggleHistory::State toggles;
  SPARSEFW_RETURN_IF_ERROR(reader.Read("toggles", WritableBytesOf(toggles)));
  SPARSEFW_ASSIGN_OR_RETURN(toggles_,
                            ToggleHistory::Create(IterationsOfEpoch(layer_.size()), 0, stream));
  toggles_.Restore(toggles);
  SPARSEFW_RETURN_IF_ERROR(VisitState([&](std::string_view name, auto* to, int64_t size) {
    return RestoreBuffer(name, to, size, reader, context_);
  }));
  return ReadStats().status();  // the iteration; waits for the copies
}

template <typename Real>
absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>> FrankWolfe<Real>::Restore(
    const DeviceLayer<Real>& layer, const StartPoint& start, const FormOptions& forms,
    StateReader& reader, const ExecutionContext& context) {
  std::unique_ptr<FrankWolfe> result(new FrankWolfe(layer, forms, context));
  SPARSEFW_RETURN_IF_ERROR(result->Allocate(start));
  SPARSEFW_RETURN_IF_ERROR(result->RestoreFrom(reader));
  return result;
}

#define SPARSEFW_INSTANTIATE(Real)                                                           \
  template absl::Status FrankWolfe<Real>::Allocate(const StartPoint&);                       \
  template void LayOut(IterateView<Real>&, DeviceArrays&);                                   \
  template int64_t FrankWolfeBytes<Real>(int64_t, int64_t);                                  \
  template int64_t FrankWolfePanelBytes<Real>(int64_t, int64_t);                             \
  template absl::Status FrankWolfe<Real>::Save(StateWriter&);                                \
  template absl::Status FrankWolfe<Real>::RestoreFrom(StateReader&);                         \
  template absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>>            \
  FrankWolfe<Real>::Restore(const DeviceLayer<Real>&, const StartPoint&, const FormOptions&, \
                            StateReader&, const ExecutionContext&)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
