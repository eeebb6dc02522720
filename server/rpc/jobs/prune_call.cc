#include "server/rpc/jobs/prune_call.h"

#include <utility>

#include "grpcpp/impl/codegen/proto_utils.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {

PruneCall::PruneCall(RpcContext& context, grpc::CallbackServerContext* rpc)
    : PruneCall::IntakeCall(context, "PruneService/Prune", rpc, &context.threads->data),
      intake_(context) {}

std::shared_ptr<PruneCall> PruneCall::Self() {
  return std::static_pointer_cast<PruneCall>(shared_from_this());
}

int64_t PruneCall::DataBytes(const v1::PruneRequest& request) const {
  return static_cast<int64_t>(PruneIntake::ChunkOf(request).data().size());
}

absl::Status PruneCall::Take(const v1::PruneRequest& request) {
  if (stage_ != Stage::kIntake) return absl::OkStatus();
  if (request.has_header()) AddSubject({request.header().request_id(), ""});
  SPARSEFW_ASSIGN_OR_RETURN(const bool complete, intake_.Take(request));
  if (request.has_header() && intake_.sums()) MoveTo(&context().threads->sums);
  return complete ? FinishIntake() : absl::OkStatus();
}

absl::Status PruneCall::TakeEnd() {
  if (stage_ != Stage::kIntake) return absl::OkStatus();
  SPARSEFW_RETURN_IF_ERROR(intake_.EndOfStream());
  return FinishIntake();
}

// The job's validation, which reads the inputs, is for other threads.
absl::Status PruneCall::FinishIntake() {
  SPARSEFW_RETURN_IF_ERROR(intake_.Finish());
  stage_ = Stage::kSubmit;
  MoveTo(&context().threads->jobs);
  Post([this] {
    MoveTo(&context().threads->data);
    if (IsClosed()) return;
    if (const absl::Status status = Submit(); !status.ok()) Close(status);
  });
  return absl::OkStatus();
}

absl::Status PruneCall::Submit() {
  SPARSEFW_ASSIGN_OR_RETURN(const Job job, intake_.Submit());
  job_ = job.name;
  AddSubject({"", job_});
  context().prune_streams.Enter(job_);
  StopReading();
  SPARSEFW_ASSIGN_OR_RETURN(
      events_, context().jobs->Watch(job_, 0, [weak = std::weak_ptr<PruneCall>(Self())] {
        if (const auto self = weak.lock()) self->PostPump();
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

void PruneCall::PostPump() {
  Post([this] { Pump(); });
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
  SPARSEFW_ASSIGN_OR_RETURN(held_,
                            share().HoldResponse(static_cast<int64_t>(response.ByteSizeLong()), 2));
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
      if (events_->suspended()) return ReactorRegistry::DrainingError();
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
    SPARSEFW_ASSIGN_OR_RETURN(ChunkReader reader, ChunkReader::Open(*context().tensors, tenant(),
                                                                    tensor, 0, std::nullopt));
    reader_.emplace(std::move(reader));
  }
  if (!reader_.has_value() || reader_->at_end()) {
    reader_.reset();
    stage_ = next;
    return false;
  }
  const int64_t bytes = reader_->NextMessage(field, &wire_);
  context().metrics->BytesSent(method(), bytes);
  share().Sent(bytes);
  return true;
}

// Ends a call that has no job yet; the end of its job ends any other.
void PruneCall::OnDrain() {
  MutexLock lock(mutex_);
  if (reading()) CloseLocked(ReactorRegistry::DrainingError());
}

void PruneCall::CleanUp() {
  const bool goes_on = events_ != nullptr && events_->suspended() && !events_->ended();
  events_.reset();
  intake_.Abandon();
  reader_.reset();
  if (job_.empty()) return;
  const bool last = context().prune_streams.Leave(job_);
  if (!last || stage_ == Stage::kDone || intake_.detach() || goes_on) return;
  // Closed before its end, and nobody else follows the job, nor does the next process
  // run it for a client that comes back. It may have been
  // deleted meanwhile, which is as good.
  context().jobs->Cancel(job_).IgnoreError();
}

}  // namespace sparsefw::server
