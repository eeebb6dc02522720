#include "server/rpc/jobs/prune_intake.h"

#include <optional>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/jobs/announced_inputs.h"
#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

int64_t TokenBytes(const v1::GramSpec& spec) {
  return spec.d_in() * (spec.activation_dtype() == v1::DATA_TYPE_F32 ? 4 : 2);
}

}  // namespace

const v1::Chunk& PruneIntake::ChunkOf(const v1::PruneRequest& request) {
  switch (request.message_case()) {
    case v1::PruneRequest::kWeight:
      return request.weight();
    case v1::PruneRequest::kGram:
      return request.gram();
    case v1::PruneRequest::kActivations:
      return request.activations();
    case v1::PruneRequest::kHeader:
    case v1::PruneRequest::MESSAGE_NOT_SET:
      break;
  }
  return v1::Chunk::default_instance();
}

absl::StatusOr<bool> PruneIntake::Take(const v1::PruneRequest& request) {
  if (has_header_ != (request.message_case() != v1::PruneRequest::kHeader)) {
    return Invalid("STREAM_ORDER", "%s",
                   has_header_ ? "only the first message may be a header"
                               : "the first message must be a header");
  }
  switch (request.message_case()) {
    case v1::PruneRequest::kHeader:
      SPARSEFW_RETURN_IF_ERROR(TakeHeader(request.header()));
      break;
    case v1::PruneRequest::kWeight:
      SPARSEFW_RETURN_IF_ERROR(TakeChunk(weight_, request.weight()));
      break;
    case v1::PruneRequest::kGram:
      SPARSEFW_RETURN_IF_ERROR(TakeChunk(gram_, request.gram()));
      break;
    case v1::PruneRequest::kActivations:
      SPARSEFW_RETURN_IF_ERROR(TakeChunk(activations_, request.activations()));
      break;
    case v1::PruneRequest::MESSAGE_NOT_SET:
      return Invalid("STREAM_ORDER", "every message must be a header or a chunk; got neither");
  }
  // Only the end of the stream tells that no more activations follow.
  return !activations_.upload.open() && FirstIncomplete() == nullptr;
}

absl::Status PruneIntake::TakeHeader(const v1::PruneHeader& header) {
  has_header_ = true;
  header_ = header;
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(header.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(header.owner()));
  owner_.name = header.owner();
  SPARSEFW_ASSIGN_OR_RETURN(spec_, FromProto(header.spec()));
  spec_.traceparent = traceparent_;
  SPARSEFW_RETURN_IF_ERROR(CheckPriority(*context_.authenticator, owner_.tenant, spec_));
  SPARSEFW_RETURN_IF_ERROR(CheckEarly());
  if (header.has_weight()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(header.weight()));
    SPARSEFW_RETURN_IF_ERROR(weight_.upload.Create(spec, owner_, UploadLife::kJob));
    weight_.expected = ByteSize(spec);
  }
  if (header.has_gram()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(header.gram()));
    SPARSEFW_RETURN_IF_ERROR(gram_.upload.Create(spec, owner_, UploadLife::kJob));
    gram_.expected = ByteSize(spec);
  }
  if (header.has_activations()) {
    SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(header.activations()));
    SPARSEFW_RETURN_IF_ERROR(activations_.upload.Create(spec, owner_, UploadLife::kJob));
    activations_.expected = header.activation_tokens();
  }
  return absl::OkStatus();
}

// Checked before gigabytes are sent. A repeated request must find its job even if the server would
// not accept it again.
absl::Status PruneIntake::CheckEarly() const {
  SPARSEFW_ASSIGN_OR_RETURN(const InputSpecs inputs, AnnouncedInputs(spec_, header_));
  const absl::Status status =
      WithInputs(*context_.tensors, owner_.tenant, spec_,
                 [&](const JobSpec& spec) { return context_.jobs->Check(spec, inputs); });
  if (!status.ok() && (absl::IsInvalidArgument(status) || header_.request_id().empty())) {
    return status;
  }
  if (!header_.has_activations() || header_.activation_tokens() >= 1) return absl::OkStatus();
  return Invalid("SPEC_INVALID", "header.activation_tokens must be at least 1; got %d",
                 header_.activation_tokens());
}

absl::Status PruneIntake::TakeChunk(Part& part, const v1::Chunk& chunk) {
  if (!part.upload.open()) {
    return Invalid("STREAM_ORDER", "the header announced no %s, but a chunk came", part.what);
  }
  if (&part != &activations_) {
    return part.upload.Append(UploadKind::kTensor, chunk.offset(), chunk.data(), chunk.crc32c());
  }
  const int64_t token_bytes = TokenBytes(header_.activations());
  if (chunk.offset() % token_bytes != 0) {
    return Invalid("PARTIAL_TOKEN",
                   "a chunk of activations must begin at a whole token of %d bytes; "
                   "got offset=%d",
                   token_bytes, chunk.offset());
  }
  SPARSEFW_RETURN_IF_ERROR(part.upload.Append(UploadKind::kGram, chunk.offset() / token_bytes,
                                              chunk.data(), chunk.crc32c()));
  if (part.upload.committed() <= part.expected) return absl::OkStatus();
  return Invalid("STREAM_ORDER", "header.activation_tokens announced %d tokens; got %d",
                 part.expected, part.upload.committed());
}

const PruneIntake::Part* PruneIntake::FirstIncomplete() const {
  for (const Part* part : {&weight_, &gram_, &activations_}) {
    if (part->upload.open() && part->upload.committed() < part->expected) return part;
  }
  return nullptr;
}

absl::Status PruneIntake::EndOfStream() const {
  if (!has_header_) return Invalid("STREAM_INCOMPLETE", "the stream ended before its header");
  const Part* part = FirstIncomplete();
  if (part == nullptr) return absl::OkStatus();
  return Invalid("STREAM_INCOMPLETE", "the stream ended after %d of %d %s of the %s",
                 part->upload.committed(), part->expected,
                 part == &activations_ ? "tokens" : "bytes", part->what);
}

absl::Status PruneIntake::Finish(Part& part, std::string* tensor) {
  if (!part.upload.open()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo info, part.upload.Finish(std::nullopt));
  *tensor = info.name;
  return absl::OkStatus();
}

absl::Status PruneIntake::Finish() {
  SPARSEFW_RETURN_IF_ERROR(Finish(weight_, &spec_.weight));
  SPARSEFW_RETURN_IF_ERROR(Finish(gram_, &spec_.gram));
  return Finish(activations_, &spec_.gram);
}

absl::StatusOr<Job> PruneIntake::Submit() {
  spec_.ends_with_stream = !header_.detach();
  absl::StatusOr<Job> job =
      WithInputs(*context_.tensors, owner_.tenant, spec_, [this](const JobSpec& spec) {
        return context_.jobs->Submit(spec, header_.request_id(), FingerprintOf(header_), owner_,
                                     false);
      });
  // A repeated request_id gives the earlier job, which does not need these tensors.
  taken_ = job.ok() && job->spec.weight == spec_.weight && job->spec.gram == spec_.gram;
  return job;
}

void PruneIntake::Abandon() {
  if (taken_) return;
  for (Part* part : {&weight_, &gram_, &activations_}) part->upload.Abandon();
  context_.tensors->ReleaseTransient(spec_.weight);
  context_.tensors->ReleaseTransient(spec_.gram);
}

}  // namespace sparsefw::server
