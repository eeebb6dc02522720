// Copies from pageable memory of the host, through pinned memory.
//
// The driver would stage such a copy too, but waits for the stream before it and keeps the calling
// thread until the last byte has left. Here the host fills one pinned buffer while the other is on
// its way, and what runs on the device beside it, on other streams above all, goes on.
#ifndef SPARSEFW_CORE_SRC_CUDA_MEMORY_STAGED_UPLOAD_H_
#define SPARSEFW_CORE_SRC_CUDA_MEMORY_STAGED_UPLOAD_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "sparsefw/matrix.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::cuda {

// Pinned memory that an upload takes. It is kept for those that follow on the
// same device, as making it would wait for everything that runs there: a process
// holds this for every upload that ever was under way at once.
inline constexpr int64_t kStagingBytes = int64_t{8} << 20;

// Enqueues the copy of `matrix` to `to`, with rows that begin every `to_pitch`
// bytes, and of `gap_free` without gaps. The views may go when it returns, the
// copy is done when the stream is. `stop` may be null.
//
// Threads: safe. The stream is of the current device.
// Stop:    looked at before every half of kStagingBytes
// Errors:  Cancelled, ResourceExhausted (OUT_OF_MEMORY, of pinned memory), what
//          went wrong on the device
absl::Status StagedUpload(ConstMatrixView matrix, void* to, size_t to_pitch, cudaStream_t stream,
                          const StopSignal* stop = nullptr);
absl::Status StagedUpload(ConstMatrixView gap_free, void* to, cudaStream_t stream,
                          const StopSignal* stop = nullptr);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_MEMORY_STAGED_UPLOAD_H_
