#include "server/rpc/jobs/prune_call.h"

#include <utility>

#include "grpcpp/impl/codegen/proto_utils.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "server/rpc/jobs/announced_inputs.h"
#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// The chunk in the message; an empty one where it has none.
const v1::Chunk& ChunkOf(const v1::PruneRequest& request) {
  if (request.has_weight()) return request.weight();
  if (request.has_gram()) return request.gram();
  return request.activations();
}

}  // namespace

PruneCall::PruneCall(RpcContext& context, grpc::CallbackServerContext* rpc)
    : PruneCall::IntakeCall(context, "PruneService/Prune", rpc, &context.threads->data) {}

int64_t PruneCall::DataBytes(const v1::PruneRequest& request) const {
  return static_cast<int64_t>(ChunkOf(request).data().size());
}

absl::Status PruneCall::Take(const v1::PruneRequest& request) {
  if (stage_ != Stage::kIntake) return absl::OkStatus();
  if (request.has_header()) AddSubject({request.header().request_id(), ""});
  SPARSEFW_RETURN_IF_ERROR(TakeMessage(request));
  const bool sums = activations_.upload.open();
  if (request.has_header() && sums) MoveTo(&context().threads->sums);
  // Only the end of the stream tells that no more activations follow.
  return sums || FirstIncomplete() != nullptr ? absl::OkStatus() : FinishIntake();
}

absl::Status PruneCall::TakeMessage(const v1::PruneRequest& request) {
  if (has_header_ != (request.message_case() != v1::PruneRequest::kHeader)) {
    return Invalid("STREAM_ORDER", "%s",
                   has_header_ ? "only the first message may be a header"
                               : "the first message must be a header");
  }
  switch (request.message_case()) {
    case v1::PruneRequest::kHeader:
      return TakeHeader(request.header());
    case v1::PruneRequest::kWeight:
      return TakeChunk(weight_, request.weight());
    case v1::PruneRequest::kGram:
      return TakeChunk(gram_, request.gram());
    case v1::PruneRequest::kActivations:
      return TakeChunk(activations_, request.activations());
    case v1::PruneRequest::MESSAGE_NOT_SET:
      break;
  }
  return Invalid("STREAM_ORDER", "every message must be a header or a chunk; got neither");
}

absl::Status PruneCall::TakeHeader(const v1::PruneHeader& header) {
  has_header_ = true;
  digest_ = JobDigestOf("Prune", header);
  header_ = header;
  header_.DiscardUnknownFields();
  SPARSEFW_ASSIGN_OR_RETURN(header_held_,
                            connection().Hold(2 * static_cast<int64_t>(header_.SpaceUsedLong())));
  SPARSEFW_RETURN_IF_ERROR(CheckRequestId(header.request_id()));
  SPARSEFW_RETURN_IF_ERROR(CheckOwner(header.owner()));
  SPARSEFW_ASSIGN_OR_RETURN(spec_, FromProto(header.spec()));
  spec_.traceparent = traceparent();
  SPARSEFW_RETURN_IF_ERROR(CheckEarly());
  if (header.has_weight()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(header.weight()));
    SPARSEFW_RETURN_IF_ERROR(weight_.upload.Create(spec, owner(), UploadLife::kJob));
    weight_.expected = ByteSize(spec);
  }
  if (header.has_gram()) {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(header.gram()));
    SPARSEFW_RETURN_IF_ERROR(gram_.upload.Create(spec, owner(), UploadLife::kJob));
    gram_.expected = ByteSize(spec);
  }
  if (header.has_activations()) {
    SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(header.activations()));
    SPARSEFW_RETURN_IF_ERROR(activations_.upload.Create(spec, owner(), UploadLife::kJob));
    activations_.expected = header.activation_tokens();
  }
  return absl::OkStatus();
}

// Checked before gigabytes are sent. A repeated request must find its job even if the server would
// not accept it again.
absl::Status PruneCall::CheckEarly() {
  SPARSEFW_ASSIGN_OR_RETURN(const InputSpecs inputs, AnnouncedInputs(spec_, header_));
  if (header_.has_activations() && header_.activation_tokens() < 1) {
    return Invalid("SPEC_INVALID", "header.activation_tokens must be at least 1; got %d",
                   header_.activation_tokens());
  }
  SPARSEFW_ASSIGN_OR_RETURN(const bool repeated,
                            context().jobs->HasRequest(tenant(), header_.request_id()));
  if (repeated) return absl::OkStatus();
  return WithInputs(*context().tensors, tenant(), spec_, [&](const JobSpec& spec) {
    return context().jobs->Check(spec, inputs, tenant());
  });
}

absl::Status PruneCall::TakeChunk(Part& part, const v1::Chunk& chunk) {
  if (!part.upload.open()) {
    return Invalid("STREAM_ORDER", "the header announced no %s, but a chunk came", part.what);
  }
  for (Part* other : {&weight_, &gram_, &activations_}) {
    if (other != &part && other->upload.open()) other->upload.Touch();
  }
  if (&part != &activations_) {
    return part.upload.Append(UploadKind::kTensor, chunk.offset(), chunk.data(), chunk.crc32c());
  }
  const v1::GramSpec& spec = header_.activations();
  const int64_t token_bytes = spec.d_in() * (spec.activation_dtype() == v1::DATA_TYPE_F32 ? 4 : 2);
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

const PruneCall::Part* PruneCall::FirstIncomplete() const {
  for (const Part* part : {&weight_, &gram_, &activations_}) {
    if (part->upload.open() && part->upload.committed() < part->expected) return part;
  }
  return nullptr;
}

absl::Status PruneCall::TakeEnd() {
  if (stage_ != Stage::kIntake) return absl::OkStatus();
  if (!has_header_) return Invalid("STREAM_INCOMPLETE", "the stream ended before its header");
  const Part* part = FirstIncomplete();
  if (part == nullptr) return FinishIntake();
  return Invalid("STREAM_INCOMPLETE", "the stream ended after %d of %d %s of the %s",
                 part->upload.committed(), part->expected,
                 part == &activations_ ? "tokens" : "bytes", part->what);
}

// The job's validation, which reads the inputs, is for other threads.
absl::Status PruneCall::FinishIntake() {
  SPARSEFW_RETURN_IF_ERROR(FinishPart(weight_, &spec_.weight));
  SPARSEFW_RETURN_IF_ERROR(FinishPart(gram_, &spec_.gram));
  SPARSEFW_RETURN_IF_ERROR(FinishPart(activations_, &spec_.gram));
  stage_ = Stage::kSubmit;
  MoveTo(&context().threads->jobs);
  Post([this] {
    MoveTo(&context().threads->data);
    if (IsClosed()) return;
    if (const absl::Status status = Accept(); !status.ok()) Close(status);
  });
  return absl::OkStatus();
}

absl::Status PruneCall::FinishPart(Part& part, std::string* tensor) {
  if (!part.upload.open()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo info, part.upload.Finish(std::nullopt));
  part.tensor = info.name;
  *tensor = info.name;
  return absl::OkStatus();
}

absl::StatusOr<Job> PruneCall::Submit() {
  spec_.ends_with_stream = !header_.detach();
  const auto submit = [this] {
    return WithInputs(*context().tensors, tenant(), spec_, [this](const JobSpec& spec) {
      return context().jobs->Submit(spec, header_.request_id(), digest_, owner(), false);
    });
  };
  absl::StatusOr<Job> job = submit();
  // An earlier stream of this request broke and took its job along. The client repeats the call to
  // have it run.
  if (job.ok() && job->state == JobState::kCancelled && job->spec.ends_with_stream) {
    const absl::Status removed = context().jobs->Delete(job->name);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    job = submit();
  }
  // A repeated request_id gives the earlier job, which does not need these tensors.
  taken_ = job.ok() && job->spec.weight == spec_.weight && job->spec.gram == spec_.gram;
  return job;
}

absl::Status PruneCall::Accept() {
  if (!header_.request_id().empty()) {
    // Before this one follows the job: another stream that ends meanwhile would cancel it. One with
    // another body is refused, and must not be the last one of this job.
    shared_ = tenant() + '\n' + header_.request_id() + '\n' + digest_.now;
    context().prune_streams.Enter(shared_);
  }
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, Submit());
  job_ = job.name;
  AddSubject({"", job_});
  StopReading();
  SPARSEFW_ASSIGN_OR_RETURN(events_,
                            context().jobs->Watch(job_, 0, [this, weak = weak_from_this()] {
                              if (const auto self = weak.lock()) Post([this] { Pump(); });
                            }));

  v1::PruneResponse response;
  auto& accepted = *response.mutable_accepted();
  accepted.set_job(job.name);
  accepted.set_weight(job.spec.weight);
  accepted.set_gram(job.spec.gram);
  SPARSEFW_RETURN_IF_ERROR(SetWire(response));
  stage_ = Stage::kEvents;
  MutexLock lock(mutex_);
  if (closed()) return absl::OkStatus();
  writing_ = true;
  StartWrite(&wire_);
  return absl::OkStatus();
}

void PruneCall::OnWriteDone(bool ok) {
  if (!ok) return Cancelled();
  Post([this] {
    writing_ = false;
    held_ = HeldBytes();
    Pump();
  });
}

void PruneCall::Pump() {
  if (writing_ || stage_ < Stage::kEvents || IsClosed()) return;
  if (stage_ == Stage::kDone) return Close(absl::OkStatus());
  const absl::StatusOr<bool> ready = NextResponse();
  if (!ready.ok()) return Close(ready.status());
  if (!*ready) return;
  MutexLock lock(mutex_);
  if (closed()) return;
  writing_ = true;
  StartWrite(&wire_);
}

absl::Status PruneCall::SetWire(const v1::PruneResponse& response) {
  // The response, and the job that it was made from.
  SPARSEFW_ASSIGN_OR_RETURN(
      held_, connection().HoldResponse(static_cast<int64_t>(response.ByteSizeLong()), 2));
  grpc::ByteBuffer wire;  // gRPC wants an empty one
  bool own = false;
  // Cannot fail: a response is far below protobuf's limit.
  static_cast<void>(grpc::SerializationTraits<v1::PruneResponse>::Serialize(response, &wire, &own));
  wire_.Swap(&wire);
  return absl::OkStatus();
}

absl::StatusOr<bool> PruneCall::NextResponse() {
  if (stage_ == Stage::kEvents) {
    if (const std::optional<JobEvent> event = events_->Next()) {
      v1::PruneResponse response;
      *response.mutable_event() = ToProto(*event);
      SPARSEFW_RETURN_IF_ERROR(SetWire(response));
      return true;
    }
    if (!events_->ended()) {
      if (events_->suspended()) return DrainingError();
      return false;
    }
    stage_ = Stage::kMask;
  }
  const Job job = *events_->latest();
  const JobResult result = job.result.value_or(JobResult());
  if (stage_ == Stage::kMask) {
    SPARSEFW_ASSIGN_OR_RETURN(const bool ready, NextChunk(result.mask, Stage::kPrunedWeight,
                                                          v1::PruneResponse::kMaskFieldNumber));
    if (ready) return true;
  }
  if (stage_ == Stage::kPrunedWeight) {
    SPARSEFW_ASSIGN_OR_RETURN(const bool ready,
                              NextChunk(result.pruned_weight, Stage::kFinal,
                                        v1::PruneResponse::kPrunedWeightFieldNumber));
    if (ready) return true;
  }
  v1::PruneResponse response;
  *response.mutable_job() = ToProto(job);
  SPARSEFW_RETURN_IF_ERROR(SetWire(response));
  stage_ = Stage::kDone;
  return true;
}

// False when the tensor has been sent, or there is none: then the stage is `next`.
absl::StatusOr<bool> PruneCall::NextChunk(const std::string& tensor, Stage next, int field) {
  if (!tensor.empty() && !reader_.has_value()) {
    SPARSEFW_ASSIGN_OR_RETURN(
        ChunkReader reader,
        ChunkReader::Open(*context().tensors, tenant(), tensor, 0, std::nullopt, &ended()));
    reader_.emplace(std::move(reader));
  }
  if (!reader_.has_value() || reader_->at_end()) {
    reader_.reset();
    stage_ = next;
    return false;
  }
  const int64_t bytes = reader_->NextMessage(field, &wire_);
  context().metrics->BytesSent(method(), bytes);
  connection().Sent(bytes);
  return true;
}

// Ends a call that has no job yet; the end of its job ends any other.
void PruneCall::OnDrain() {
  MutexLock lock(mutex_);
  if (closed() || !reading()) return;
  sent_away_ = true;
  CloseLocked(DrainingError());
}

void PruneCall::CleanUp() {
  bool goes_on = events_ != nullptr && events_->goes_on();
  {
    // The job was accepted while the drain closed the call. Only a request id leads back to it.
    MutexLock lock(mutex_);
    if (sent_away_) goes_on = !shared_.empty();
  }
  events_.reset();
  if (!taken_) {
    // Only what this stream sent: a name in its header may be that of anybody.
    for (Part* part : {&weight_, &gram_, &activations_}) {
      part->upload.Abandon();
      context().tensors->ReleaseTransient(part->tensor);
    }
  }
  reader_.reset();
  const bool last = shared_.empty() || context().prune_streams.Leave(shared_);
  if (job_.empty() || !last || stage_ == Stage::kDone || header_.detach() || goes_on) return;
  // Closed before its end, and nobody else follows the job, nor does the next process run it for a
  // client that comes back. It may have been deleted meanwhile, which is as good.
  context().jobs->Cancel(job_).IgnoreError();
}

}  // namespace sparsefw::server
