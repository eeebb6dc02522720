// Client::ReadTensor.
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/src/rpc.h"
#include "client/cpp/src/silence_guard.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/enum_names.h"
#include "sparsefw/client/error.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

// Taken at first, whatever size the server says; then as bytes come.
constexpr int64_t kFirstRoom = int64_t{64} << 20;

// "MASK [4, 8] of U1"; fields that are not set are left out.
std::string Describe(const v1::TensorSpec& spec) {
  std::string text;
  if (spec.kind() != v1::TENSOR_KIND_UNSPECIFIED) text = ShortName(spec.kind()) + " ";
  text += absl::StrFormat("[%s]", absl::StrJoin(spec.dims(), ", "));
  if (spec.dtype() != v1::DATA_TYPE_UNSPECIFIED) text += " of " + ShortName(spec.dtype());
  return text;
}

bool IsAsExpected(const v1::TensorSpec& spec, const v1::TensorSpec& expected) {
  return (expected.kind() == v1::TENSOR_KIND_UNSPECIFIED || spec.kind() == expected.kind()) &&
         (expected.dtype() == v1::DATA_TYPE_UNSPECIFIED || spec.dtype() == expected.dtype()) &&
         (expected.dims().empty() || std::ranges::equal(spec.dims(), expected.dims()));
}

// Checks what the server says about a tensor before anything is allocated for it.
absl::Status CheckDescription(const v1::Tensor& tensor, const std::string& name,
                              const v1::TensorSpec& expected) {
  const absl::StatusOr<int64_t> bytes = ByteSize(tensor.spec());
  if (!bytes.ok() || *bytes != tensor.byte_size()) {
    return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                  "%s: byte_size must be that of its dims and dtype; the server says %d for %s",
                  name, tensor.byte_size(), Describe(tensor.spec()));
  }
  if (IsAsExpected(tensor.spec(), expected)) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInternal, "PROTOCOL", "%s: must be %s; the server says %s", name,
                Describe(expected), Describe(tensor.spec()));
}

// One tensor, read over as many streams as it takes.
class Reading {
 public:
  Reading(const internal::Rpc& rpc, const v1::Tensor& tensor, const std::string& name,
          const TransferCallback& progress, const CallOptions& call)
      : rpc_(rpc), name_(name), total_(tensor.byte_size()), progress_(progress), call_(call) {}

  // The good bytes so far.
  std::vector<std::byte>& bytes() { return bytes_; }
  int64_t done() const { return std::ssize(bytes_); }

  // Appends the chunks of one stream.
  absl::Status Follow() {
    grpc::ClientContext context;
    rpc_.AddMetadata(&context);
    const internal::CancelOnStop cancel(call_, &context);
    internal::SilenceGuard guard(rpc_.options().watch_silence, &context);
    v1::ReadTensorRequest request;
    request.set_name(name_);
    request.set_offset(done());
    const auto stream = rpc_.data().ReadTensor(&context, request);
    v1::ReadTensorResponse response;
    absl::Status bad;
    while (bad.ok() && stream->Read(&response)) {
      bad = Take(response.chunk());
      guard.Heard();
    }
    if (!bad.ok()) context.TryCancel();
    const absl::Status status = rpc_.StreamStatus(stream->Finish(), call_);
    if (!bad.ok()) return bad;
    if (!guard.silent() || call_.stop.stop_requested()) return status;
    return Refuse(absl::StatusCode::kUnavailable, "UNREACHABLE", "nothing came of %s for %s", name_,
                  absl::FormatDuration(rpc_.options().watch_silence));
  }

 private:
  absl::Status Take(const v1::Chunk& chunk) {
    const auto data = std::as_bytes(std::span(chunk.data()));
    // A chunk of no bytes is no progress: a server could send them for ever.
    if (chunk.offset() != done() || data.empty() || std::ssize(data) > total_ - done()) {
      return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                    "%s: expected bytes at %d of %d; got %d bytes at %d", name_, done(), total_,
                    data.size(), chunk.offset());
    }
    if (Crc32c(data) != chunk.crc32c()) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "%s: the chunk at byte %d does not match its checksum", name_, done());
    }
    if (bytes_.size() + data.size() > bytes_.capacity()) {
      const int64_t room = std::max(kFirstRoom, 2 * (done() + std::ssize(data)));
      bytes_.reserve(static_cast<size_t>(std::min(room, total_)));
    }
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    if (progress_) progress_(TransferProgress{done(), total_});
    return call_.stop.stop_requested() ? internal::Stopped() : absl::OkStatus();
  }

  const internal::Rpc& rpc_;
  const std::string& name_;
  const int64_t total_;
  const TransferCallback& progress_;
  const CallOptions& call_;
  std::vector<std::byte> bytes_;
};

absl::Status ReadToTheEnd(const internal::Rpc& rpc, const v1::Tensor& tensor,
                          const std::string& name, const CallOptions& call, Reading& reading) {
  Backoff backoff = rpc.NewBackoff();
  while (reading.done() < tensor.byte_size()) {
    const int64_t before = reading.done();
    absl::Status status = reading.Follow();
    if (status.ok() && reading.done() == tensor.byte_size()) break;
    if (status.ok()) {
      status =
          Refuse(absl::StatusCode::kUnavailable, "PROTOCOL",
                 "%s: the stream ended at byte %d of %d", name, reading.done(), tensor.byte_size());
    }
    if (!IsTransient(status) && !absl::IsDataLoss(status)) return status;
    if (reading.done() > before) backoff.Reset(absl::Now());
    SPARSEFW_RETURN_IF_ERROR(rpc.WaitToRetry(status, backoff, call));
  }
  if (Crc32c(reading.bytes()) == tensor.crc32c()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                "%s: the bytes do not match their checksum", name);
}

}  // namespace

absl::StatusOr<TensorData> Client::ReadTensor(const std::string& name,
                                              const TransferCallback& progress,
                                              const CallOptions& call,
                                              const v1::TensorSpec& expected) {
  TensorData result;
  SPARSEFW_ASSIGN_OR_RETURN(result.tensor, GetTensor(name, call));
  SPARSEFW_RETURN_IF_ERROR(CheckDescription(result.tensor, name, expected));
  Reading reading(*rpc_, result.tensor, name, progress, call);
  try {
    SPARSEFW_RETURN_IF_ERROR(ReadToTheEnd(*rpc_, result.tensor, name, call, reading));
  } catch (const std::bad_alloc&) {
    return Refuse(absl::StatusCode::kResourceExhausted, "CLIENT_MEMORY",
                  "%s: its %d bytes must fit into this machine's memory", name,
                  result.tensor.byte_size());
  }
  result.bytes = std::move(reading.bytes());
  return result;
}

}  // namespace sparsefw::client
