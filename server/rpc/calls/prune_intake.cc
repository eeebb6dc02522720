#include "server/rpc/calls/prune_intake.h"

#include <span>
#include <utility>
#include <variant>

#include "server/jobs/job_spec.h"
#include "server/rpc/convert/common.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/fingerprint.h"
#include "sparsefw/solver.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

int64_t ActivationBytes(TensorDType dtype) { return dtype == TensorDType::kF32 ? 4 : 2; }

absl::Status CheckSources(std::string_view what, int count, std::string_view sources) {
  if (count == 1) return absl::OkStatus();
  return Invalid("SPEC_INVALID", absl::StrFormat("the %s must come from exactly one of %s; got %d",
                                                 what, sources, count));
}

}  // namespace

absl::StatusOr<bool> PruneIntake::Take(const v1::PruneRequest& request) {
  if (has_header_ != (request.message_case() != v1::PruneRequest::kHeader)) {
    return Invalid("STREAM_ORDER", has_header_ ? "only the first message may be a header"
                                               : "the first message must be a header");
  }
  switch (request.message_case()) {
    case v1::PruneRequest::kHeader:
      SPARSEFW_RETURN_IF_ERROR(TakeHeader(request.header()));
      break;
    case v1::PruneRequest::kWeight:
      SPARSEFW_RETURN_IF_ERROR(TakeChunk(&weight_, "weight", request.weight()));
      break;
    case v1::PruneRequest::kGram:
      SPARSEFW_RETURN_IF_ERROR(TakeChunk(&gram_, "gram", request.gram()));
      break;
    case v1::PruneRequest::kActivations:
      SPARSEFW_RETURN_IF_ERROR(TakeActivations(request.activations()));
      break;
    case v1::PruneRequest::MESSAGE_NOT_SET:
      return Invalid("STREAM_ORDER", "every message must be a header or a chunk; got neither");
  }
  // How many tokens there are only the end of the stream tells.
  return activations_.empty() && Complete();
}

absl::Status PruneIntake::TakeHeader(const v1::PruneHeader& header) {
  has_header_ = true;
  header_ = header;
  SPARSEFW_RETURN_IF_ERROR(CheckLength("request_id", header.request_id(), kMaxRequestIdBytes));
  SPARSEFW_RETURN_IF_ERROR(CheckLength("owner", header.owner(), kMaxOwnerBytes));
  SPARSEFW_ASSIGN_OR_RETURN(spec_, FromProto(header.spec()));
  SPARSEFW_RETURN_IF_ERROR(
      CheckSources("weight", (header.has_weight() ? 1 : 0) + (spec_.weight.empty() ? 0 : 1),
                   "spec.weight and header.weight"));
  SPARSEFW_RETURN_IF_ERROR(CheckSources("Gram matrix",
                                        (header.has_gram() ? 1 : 0) +
                                            (header.has_activations() ? 1 : 0) +
                                            (spec_.gram.empty() ? 0 : 1),
                                        "spec.gram, header.gram and header.activations"));
  SPARSEFW_RETURN_IF_ERROR(CheckEarly(spec_));
  return OpenInputs();
}

// What can be refused before gigabytes have been sent.
absl::Status PruneIntake::CheckEarly(const JobSpec& spec) const {
  SPARSEFW_RETURN_IF_ERROR(
      CheckPoints(spec, [](const SweepPoint& point) { return ValidateOptions(point.options); }));
  if (!header_.has_weight()) return absl::OkStatus();
  SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec weight, FromProto(header_.weight()));
  if (weight.kind != TensorKind::kWeight) {
    return Invalid("SPEC_INVALID", absl::StrFormat("header.weight.kind must be WEIGHT; got %s",
                                                   v1::TensorKind_Name(header_.weight().kind())));
  }
  SPARSEFW_RETURN_IF_ERROR(ValidateSpec(weight));
  if (header_.has_gram() && header_.gram().kind() != v1::GRAM) {
    return Invalid("SPEC_INVALID", absl::StrFormat("header.gram.kind must be GRAM; got %s",
                                                   v1::TensorKind_Name(header_.gram().kind())));
  }
  return CheckPoints(spec, [&](const SweepPoint& point) {
    return ValidatePattern(point.pattern, weight.rows, weight.cols);
  });
}

absl::Status PruneIntake::OpenInputs() {
  const auto open = [this](const v1::TensorSpec& proto, Input* input) -> absl::Status {
    SPARSEFW_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(proto));
    SPARSEFW_ASSIGN_OR_RETURN(const auto created,
                              context_.tensors->CreateUpload(spec, "", header_.owner()));
    input->upload = std::get<UploadInfo>(created).name;
    input->byte_size = ByteSize(spec);
    return absl::OkStatus();
  };
  if (header_.has_weight()) SPARSEFW_RETURN_IF_ERROR(open(header_.weight(), &weight_));
  if (header_.has_gram()) SPARSEFW_RETURN_IF_ERROR(open(header_.gram(), &gram_));
  if (!header_.has_activations()) return absl::OkStatus();
  if (header_.activation_tokens() < 1) {
    return Invalid("SPEC_INVALID",
                   absl::StrFormat("header.activation_tokens must be at least 1; got %d",
                                   header_.activation_tokens()));
  }
  SPARSEFW_ASSIGN_OR_RETURN(const GramSpec spec, FromProto(header_.activations()));
  SPARSEFW_ASSIGN_OR_RETURN(const auto created,
                            context_.tensors->CreateGramUpload(spec, "", header_.owner()));
  activations_ = std::get<UploadInfo>(created).name;
  token_bytes_ = spec.d_in * ActivationBytes(spec.activation_dtype);
  return absl::OkStatus();
}

absl::Status PruneIntake::TakeChunk(Input* input, std::string_view name, const v1::Chunk& chunk) {
  if (input->upload.empty()) {
    return Invalid("STREAM_ORDER",
                   absl::StrFormat("the header announced no %s, but a chunk of it came", name));
  }
  SPARSEFW_ASSIGN_OR_RETURN(
      input->committed,
      context_.tensors->Write(input->upload, chunk.offset(), std::as_bytes(std::span(chunk.data())),
                              chunk.crc32c()));
  return absl::OkStatus();
}

absl::Status PruneIntake::TakeActivations(const v1::Chunk& chunk) {
  if (activations_.empty()) {
    return Invalid("STREAM_ORDER", "the header announced no activations, but a chunk of them came");
  }
  if (chunk.offset() % token_bytes_ != 0) {
    return Invalid(
        "PARTIAL_TOKEN",
        absl::StrFormat("a chunk of activations must begin at a whole token of %d bytes; "
                        "got offset=%d",
                        token_bytes_, chunk.offset()));
  }
  SPARSEFW_ASSIGN_OR_RETURN(
      const int64_t tokens,
      context_.tensors->Accumulate(activations_, chunk.offset() / token_bytes_,
                                   std::as_bytes(std::span(chunk.data())), chunk.crc32c()));
  activation_tokens_ = tokens;
  if (tokens <= header_.activation_tokens()) return absl::OkStatus();
  return Invalid("STREAM_ORDER",
                 absl::StrFormat("header.activation_tokens announced %d tokens; got %d",
                                 header_.activation_tokens(), tokens));
}

bool PruneIntake::Complete() const {
  return has_header_ && !weight_.awaited() && !gram_.awaited() &&
         (activations_.empty() || activation_tokens_ == header_.activation_tokens());
}

absl::Status PruneIntake::EndOfStream() {
  if (Complete()) return absl::OkStatus();
  if (!has_header_) return Invalid("STREAM_INCOMPLETE", "the stream ended before its header");
  if (weight_.awaited() || gram_.awaited()) {
    const Input& input = weight_.awaited() ? weight_ : gram_;
    return Invalid(
        "STREAM_INCOMPLETE",
        absl::StrFormat("the stream ended after %d of the %s's %d bytes", input.committed,
                        weight_.awaited() ? "weight" : "gram", input.byte_size));
  }
  return Invalid("STREAM_INCOMPLETE",
                 absl::StrFormat("the stream ended after %d of %d tokens of activations",
                                 activation_tokens_, header_.activation_tokens()));
}

absl::StatusOr<std::string> PruneIntake::Complete(const Input& input) {
  SPARSEFW_ASSIGN_OR_RETURN(const TensorInfo tensor,
                            context_.tensors->Finish(input.upload, std::nullopt));
  context_.transient->Mark(tensor.name);
  return tensor.name;
}

absl::StatusOr<Job> PruneIntake::Submit() {
  if (!weight_.upload.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(spec_.weight, Complete(weight_));
  }
  if (!gram_.upload.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(spec_.gram, Complete(gram_));
  }
  if (!activations_.empty()) {
    SPARSEFW_ASSIGN_OR_RETURN(spec_.gram, Complete(Input{activations_}));
  }
  absl::StatusOr<Job> job = context_.jobs->Submit(spec_, header_.request_id(),
                                                  FingerprintOf(header_), header_.owner(), false);
  // With a request_id that was used before it is the job of that time, and
  // what came now is not needed.
  taken_ = job.ok() && job->spec.weight == spec_.weight && job->spec.gram == spec_.gram;
  return job;
}

void PruneIntake::Abandon() {
  if (taken_) return;
  for (const std::string& upload : {weight_.upload, gram_.upload, activations_}) {
    // Unknown when it was finished or has expired: nothing is left to drop.
    if (!upload.empty()) context_.tensors->DeleteUpload(upload).IgnoreError();
  }
  context_.transient->Release(spec_.weight);
  context_.transient->Release(spec_.gram);
}

}  // namespace sparsefw::server
