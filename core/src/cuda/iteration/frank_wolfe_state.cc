// Copies the state that the coming iterations depend on from the device and back.
//
// All of it, E and U at any iteration. Beside the matrices and StepState these are
// the window of the selection, for the order of a sum depends on whether it was
// guessed right, and the toggles of past epochs, which choose how U is updated.
#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/src/cuda/iteration/frank_wolfe.h"
#include "core/src/cuda/memory/staged_upload.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

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
  template absl::Status FrankWolfe<Real>::Save(StateWriter&);                                \
  template absl::Status FrankWolfe<Real>::RestoreFrom(StateReader&);                         \
  template absl::StatusOr<std::unique_ptr<IncrementalFrankWolfe<DeviceSaliency>>>            \
  FrankWolfe<Real>::Restore(const DeviceLayer<Real>&, const StartPoint&, const FormOptions&, \
                            StateReader&, const ExecutionContext&)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
