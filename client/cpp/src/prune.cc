// Client::Prune, the one-call form.
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "client/cpp/src/known_job.h"
#include "client/cpp/src/rpc.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/error.h"
#include "sparsefw/client/job_state.h"
#include "sparsefw/crc32c.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

absl::Status CheckTensor(const char* what, const v1::TensorSpec& spec,
                         std::span<const std::byte> bytes) {
  SPARSEFW_ASSIGN_OR_RETURN(const int64_t size, ByteSize(spec));
  if (size == static_cast<int64_t>(bytes.size())) return absl::OkStatus();
  return Invalid("CLIENT_ARGUMENT", "dims and dtype of the %s ask for %d bytes; got %d", what, size,
                 bytes.size());
}

v1::TensorSpec MaskOf(const v1::TensorSpec& weight) {
  return MaskSpec(weight.dims(0), weight.dims(1));
}

v1::TensorSpec PrunedOf(v1::TensorSpec weight) {
  weight.set_kind(v1::TENSOR_KIND_PRUNED_WEIGHT);
  return weight;
}

// Bytes of one token; 0 where the spec is one that the server will refuse.
int64_t TokenBytes(const v1::GramSpec& spec) {
  return spec.d_in() * (spec.activation_dtype() == v1::DATA_TYPE_F32 ? 4 : 2);
}

int64_t Tokens(const PruneInput& input) {
  const int64_t token_bytes = TokenBytes(input.activations);
  return token_bytes <= 0 ? 0 : std::ssize(input.activation_bytes) / token_bytes;
}

absl::Status CheckActivations(const PruneInput& input) {
  const int64_t token_bytes = TokenBytes(input.activations);
  if (token_bytes <= 0 || std::ssize(input.activation_bytes) % token_bytes == 0) {
    return absl::OkStatus();
  }
  return Invalid("CLIENT_ARGUMENT", "activations must be whole tokens of %d bytes; got %d bytes",
                 token_bytes, input.activation_bytes.size());
}

absl::Status Check(const PruneInput& input) {
  if (!input.spec.weight().empty() || !input.spec.gram().empty()) {
    return Invalid("CLIENT_ARGUMENT", "the tensor names of a one-call spec must be empty");
  }
  SPARSEFW_RETURN_IF_ERROR(CheckTensor("weight", input.weight, input.weight_bytes));
  if (input.gram_bytes.empty() == input.activation_bytes.empty()) {
    return Invalid("CLIENT_ARGUMENT", "either a Gram or activations must be given, not both");
  }
  if (!input.gram_bytes.empty()) return CheckTensor("Gram", input.gram, input.gram_bytes);
  return CheckActivations(input);
}

// One Prune stream, read and written by one thread: the server answers only
// when all input is in, so neither side can fill up the other.
class OneCall {
 public:
  using Stream = grpc::ClientReaderWriter<v1::PruneRequest, v1::PruneResponse>;

  OneCall(const internal::Rpc& rpc, const PruneInput& input, const JobCallback& on_event)
      : rpc_(rpc),
        input_(input),
        on_event_(on_event),
        mask_bytes_(static_cast<size_t>(ByteSize(MaskOf(input.weight)).value_or(0))) {}

  // False when the stream broke; Finish() tells why.
  bool Send(Stream& stream) const {
    v1::PruneRequest request;
    v1::PruneHeader& header = *request.mutable_header();
    *header.mutable_spec() = input_.spec;
    *header.mutable_weight() = input_.weight;
    if (input_.activation_bytes.empty()) {
      *header.mutable_gram() = input_.gram;
    } else {
      *header.mutable_activations() = input_.activations;
      header.set_activation_tokens(Tokens(input_));
    }
    header.set_request_id(internal::NewRequestId());
    header.set_detach(input_.detach);
    header.set_owner(rpc_.options().owner);
    return stream.Write(request) &&
           SendChunks(stream, input_.weight_bytes, &v1::PruneRequest::mutable_weight) &&
           SendChunks(stream, input_.gram_bytes, &v1::PruneRequest::mutable_gram) &&
           SendChunks(stream, input_.activation_bytes, &v1::PruneRequest::mutable_activations) &&
           stream.WritesDone();
  }

  absl::Status Receive(v1::PruneResponse& response) {
    if (done_) {
      return Refuse(absl::StatusCode::kInternal, "PROTOCOL", "Prune went on after the final job");
    }
    switch (response.message_case()) {
      case v1::PruneResponse::kAccepted:
        job_ = response.accepted().job();
        return absl::OkStatus();
      case v1::PruneResponse::kEvent:
        known_.Complete(response.mutable_event()->mutable_job());
        if (on_event_) on_event_(response.event());
        return absl::OkStatus();
      case v1::PruneResponse::kMask:
        return Append(response.mask(), "mask", mask_bytes_, output_.mask);
      case v1::PruneResponse::kPrunedWeight:
        return Append(response.pruned_weight(), "pruned weight", input_.weight_bytes.size(),
                      output_.pruned_weight);
      case v1::PruneResponse::kJob:
        output_.job = response.job();
        done_ = true;
        return CheckWhole();
      case v1::PruneResponse::MESSAGE_NOT_SET:
        break;
    }
    return absl::OkStatus();  // of a newer server: nothing we asked for
  }

  // Set once the server has accepted the job.
  const std::string& job() const { return job_; }
  bool done() const { return done_; }
  PruneOutput& output() { return output_; }

 private:
  bool SendChunks(Stream& stream, std::span<const std::byte> bytes,
                  v1::Chunk* (v1::PruneRequest::*field)()) const {
    v1::PruneRequest request;
    const auto step = static_cast<size_t>(rpc_.options().chunk_bytes);
    for (size_t offset = 0; offset < bytes.size(); offset += step) {
      const auto data = bytes.subspan(offset, std::min(step, bytes.size() - offset));
      v1::Chunk& chunk = *(request.*field)();
      chunk.set_offset(static_cast<int64_t>(offset));
      chunk.set_crc32c(Crc32c(data));
      chunk.set_data(data.data(), data.size());
      if (!stream.Write(request)) return false;
    }
    return true;
  }

  // `size` is that of the caller's layer: no more is ever kept. A chunk of no bytes is no progress.
  static absl::Status Append(const v1::Chunk& chunk, const char* what, size_t size,
                             std::vector<std::byte>& bytes) {
    const auto data = std::as_bytes(std::span(chunk.data()));
    if (chunk.offset() != std::ssize(bytes) || data.empty() || data.size() > size - bytes.size()) {
      return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                    "expected bytes at %d of the %d of the %s; got %d bytes at %d", bytes.size(),
                    size, what, data.size(), chunk.offset());
    }
    if (Crc32c(data) != chunk.crc32c()) {
      return Refuse(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                    "the chunk at byte %d of the %s does not match its "
                    "checksum",
                    chunk.offset(), what);
    }
    bytes.insert(bytes.end(), data.begin(), data.end());
    return absl::OkStatus();
  }

  absl::Status CheckWhole() const {
    for (const auto& [what, bytes, size] :
         {std::tuple("mask", output_.mask.size(), mask_bytes_),
          std::tuple("pruned weight", output_.pruned_weight.size(), input_.weight_bytes.size())}) {
      if (bytes == 0 || bytes == size) continue;
      return Refuse(absl::StatusCode::kInternal, "PROTOCOL",
                    "the %s must have the %d bytes of the layer's; it ended after %d", what, size,
                    bytes);
    }
    return absl::OkStatus();
  }

  const internal::Rpc& rpc_;
  const PruneInput& input_;
  const JobCallback& on_event_;
  const size_t mask_bytes_;
  std::string job_;
  internal::KnownJob known_;
  bool done_ = false;
  PruneOutput output_;
};

}  // namespace

absl::StatusOr<PruneOutput> Client::Prune(const PruneInput& input, const JobCallback& on_event,
                                          const CallOptions& call) {
  SPARSEFW_RETURN_IF_ERROR(Check(input));
  OneCall one(*rpc_, input, on_event);
  absl::Status status;
  {
    grpc::ClientContext context;
    rpc_->AddMetadata(&context);
    const internal::CancelOnStop cancel(call, &context);
    const auto stream = rpc_->data_jobs().Prune(&context);
    one.Send(*stream);
    v1::PruneResponse response;
    absl::Status bad;
    while (bad.ok() && stream->Read(&response)) bad = one.Receive(response);
    if (!bad.ok()) context.TryCancel();
    status = rpc_->StreamStatus(stream->Finish(), call);
    if (!bad.ok()) status = bad;
  }
  if (status.ok() && one.done()) return std::move(one.output());
  if (status.ok()) {
    return Refuse(absl::StatusCode::kInternal, "PROTOCOL", "Prune ended without the final job");
  }
  // The job outlives this stream only if it was told to, or if the server ends: it
  // runs the job after its restart.
  const bool survives = !one.job().empty() && (input.detach || HasReason(status, "DRAINING"));
  if (!survives || !(IsTransient(status) || absl::IsDataLoss(status))) return status;
  PruneOutput output;
  SPARSEFW_ASSIGN_OR_RETURN(output.job, WaitJob(one.job(), on_event, call));
  if (const std::string& mask = output.job.result().mask(); !mask.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(TensorData data, ReadTensor(mask, {}, call, MaskOf(input.weight)));
    output.mask = std::move(data.bytes);
  }
  if (const std::string& pruned = output.job.result().pruned_weight(); !pruned.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(TensorData data,
                              ReadTensor(pruned, {}, call, PrunedOf(input.weight)));
    output.pruned_weight = std::move(data.bytes);
  }
  return output;
}

}  // namespace sparsefw::client
