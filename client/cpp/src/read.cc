// Client::ReadTensor.
#include <grpcpp/support/sync_stream.h>

#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/error.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/status_macros.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::client {
namespace {

// Appends the chunks of one stream, from `done` on; `done` counts good bytes.
absl::Status ReadFrom(const internal::Rpc& rpc, const std::string& name,
                      std::vector<std::byte>& bytes, int64_t& done,
                      const TransferCallback& progress, const CallOptions& call) {
  const auto total = static_cast<int64_t>(bytes.size());
  grpc::ClientContext context;
  rpc.AddMetadata(&context);
  const internal::CancelOnStop cancel(call, &context);
  v1::ReadTensorRequest request;
  request.set_name(name);
  request.set_offset(done);
  const auto stream = rpc.data().ReadTensor(&context, request);
  v1::ReadTensorResponse response;
  absl::Status bad;
  while (bad.ok() && stream->Read(&response)) {
    const v1::Chunk& chunk = response.chunk();
    const auto data = std::as_bytes(std::span(chunk.data()));
    const auto size = static_cast<int64_t>(data.size());
    if (chunk.offset() != done || size > total - done) {
      bad = Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                   "%s: expected bytes at %d of %d; got %d bytes at %d", name, done, total, size,
                   chunk.offset());
    } else if (Crc32c(data) != chunk.crc32c()) {
      bad = Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                   "%s: the chunk at byte %d does not match its checksum", name, done);
    } else {
      std::memcpy(bytes.data() + done, data.data(), data.size());
      done += size;
      if (progress) progress(TransferProgress{done, total});
      if (call.stop.stop_requested()) bad = internal::Stopped();
    }
  }
  if (!bad.ok()) context.TryCancel();
  const absl::Status status = rpc.StreamStatus(stream->Finish(), call);
  return bad.ok() ? status : bad;
}

}  // namespace

absl::StatusOr<TensorData> Client::ReadTensor(const std::string& name,
                                              const TransferCallback& progress,
                                              const CallOptions& call) {
  TensorData result;
  SPARSEFW_ASSIGN_OR_RETURN(result.tensor, GetTensor(name, call));
  result.bytes.resize(static_cast<size_t>(result.tensor.byte_size()));
  Backoff backoff = rpc_->NewBackoff();
  int64_t done = 0;
  while (done < result.tensor.byte_size()) {
    const int64_t before = done;
    absl::Status status = ReadFrom(*rpc_, name, result.bytes, done, progress, call);
    if (status.ok() && done == result.tensor.byte_size()) break;
    if (status.ok()) {
      status =
          Refuse(absl::StatusCode::kUnavailable, "PROTOCOL",
                 "%s: the stream ended at byte %d of %d", name, done, result.tensor.byte_size());
    }
    if (!IsTransient(status) && !absl::IsDataLoss(status)) return status;
    if (done > before) backoff.Reset(absl::Now());
    SPARSEFW_RETURN_IF_ERROR(rpc_->WaitToRetry(status, backoff, call));
  }
  if (Crc32c(result.bytes) != result.tensor.crc32c()) {
    return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                  "%s: the bytes do not match their checksum", name);
  }
  return result;
}

}  // namespace sparsefw::client
