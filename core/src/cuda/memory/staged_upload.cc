#include "core/src/cuda/memory/staged_upload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "core/src/cuda/runtime/device_pool.h"
#include "core/src/cuda/runtime/stream.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

constexpr size_t kHalfBytes = kStagingBytes / 2;

// Rows of host memory and where they go.
struct Piece {
  const std::byte* from = nullptr;
  size_t from_pitch = 0;
  std::byte* to = nullptr;
  size_t to_pitch = 0;
  size_t width = 0;
  size_t rows = 0;  // width * rows <= kHalfBytes
};

// One of the two pinned buffers.
class Half {
 public:
  absl::Status Allocate() {
    SPARSEFW_ASSIGN_OR_RETURN(bytes_, PinnedBuffer<std::byte>::Create(kHalfBytes));
    SPARSEFW_ASSIGN_OR_RETURN(copied_, CreateEvent());
    return absl::OkStatus();
  }

  absl::Status Send(const Piece& piece, cudaStream_t stream) {
    if (on_its_way_) SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(copied_.get()));
    on_its_way_ = false;
    if (piece.from_pitch == piece.width) {
      std::memcpy(bytes_.data(), piece.from, piece.width * piece.rows);
    } else {
      for (size_t row = 0; row < piece.rows; ++row) {
        std::memcpy(bytes_.data() + row * piece.width, piece.from + row * piece.from_pitch,
                    piece.width);
      }
    }
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(piece.to, piece.to_pitch, bytes_.data(),
                                                    piece.width, piece.width, piece.rows,
                                                    cudaMemcpyHostToDevice, stream));
    SPARSEFW_CUDA_RETURN_IF_ERROR(cudaEventRecord(copied_.get(), stream));
    on_its_way_ = true;
    return absl::OkStatus();
  }

 private:
  PinnedBuffer<std::byte> bytes_;
  Event copied_;  // what was sent last; of whatever stream
  bool on_its_way_ = false;
};

using Halves = std::array<Half, 2>;

absl::StatusOr<std::unique_ptr<Halves>> MakeHalves() {
  auto halves = std::make_unique<Halves>();
  for (Half& half : *halves) SPARSEFW_RETURN_IF_ERROR(half.Allocate());
  return halves;
}

absl::Status SendAll(ConstMatrixView matrix, void* to, size_t to_pitch, Halves& halves,
                     cudaStream_t stream, const StopSignal* stop) {
  const size_t size = SizeOf(matrix.dtype());
  const size_t row_bytes = static_cast<size_t>(matrix.cols()) * size;
  const auto rows = static_cast<size_t>(matrix.rows());
  const size_t width = std::min(row_bytes, kHalfBytes);  // longer rows go in parts
  const size_t rows_at_once = width == 0 ? 1 : kHalfBytes / width;
  size_t turn = 0;
  for (size_t col = 0; col < row_bytes; col += width) {
    for (size_t row = 0; row < rows; row += rows_at_once) {
      if (stop != nullptr && stop->requested()) {
        return absl::CancelledError("the engine was told to stop");
      }
      const Piece piece = {.from = matrix.row_bytes(static_cast<int64_t>(row)) + col,
                           .from_pitch = static_cast<size_t>(matrix.stride()) * size,
                           .to = static_cast<std::byte*>(to) + row * to_pitch + col,
                           // CUDA refuses a pitch from 2 GiB on, whatever the rows.
                           .to_pitch = rows == 1 ? width : to_pitch,
                           .width = std::min(width, row_bytes - col),
                           .rows = std::min(rows_at_once, rows - row)};
      SPARSEFW_RETURN_IF_ERROR(halves[turn++ % halves.size()].Send(piece, stream));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StagedUpload(ConstMatrixView matrix, void* to, size_t to_pitch, cudaStream_t stream,
                          const StopSignal* stop) {
  int device = 0;
  SPARSEFW_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device));
  DevicePool<std::unique_ptr<Halves>>& pool = PoolOf<std::unique_ptr<Halves>>(device);
  std::unique_ptr<Halves> halves = pool.Take().value_or(nullptr);
  if (halves == nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(halves, MakeHalves());
  }
  absl::Status sent = SendAll(matrix, to, to_pitch, *halves, stream, stop);
  // After any other error nobody knows whether the device still reads them.
  if (sent.ok() || absl::IsCancelled(sent)) pool.Give(std::move(halves));
  return sent;
}

absl::Status StagedUpload(ConstMatrixView gap_free, void* to, cudaStream_t stream,
                          const StopSignal* stop) {
  const size_t row_bytes = static_cast<size_t>(gap_free.cols()) * SizeOf(gap_free.dtype());
  return StagedUpload(gap_free, to, row_bytes, stream, stop);
}

}  // namespace sparsefw::cuda
