#include "server/rpc/calls/read_call.h"

#include <utility>

namespace sparsefw::server {

void ReadCall::Start(const v1::ReadTensorRequest& request) {
  AddSubject(SubjectOf(request));
  if (!Open()) return;
  context().data_executor->Post(
      [self = std::static_pointer_cast<ReadCall>(shared_from_this()), request] {
        absl::StatusOr<ChunkReader> reader =
            ChunkReader::Open(*self->context().tensors, self->tenant(), request.name(),
                              request.offset(), request.limit());
        if (!reader.ok()) return self->Close(reader.status());
        self->reader_.emplace(*std::move(reader));
        self->Pump();
      });
}

void ReadCall::Pump() {
  if (reader_->at_end()) {
    // Before the client hears of the end: a drain that waits for it may end.
    ReleaseTensor();
    return Close(absl::OkStatus());
  }
  reader_->Next(response_.mutable_chunk());
  const auto size = static_cast<int64_t>(response_.chunk().data().size());
  {
    MutexLock lock(mutex_);
    if (closed()) return;
    StartWrite(&response_);
  }
  context().metrics->BytesSent(method(), size);
}

void ReadCall::ReleaseTensor() {
  if (!reader_.has_value()) return;
  if (reader_->complete()) context().fetches->Fetched(reader_->name());
  reader_.reset();
}

void ReadCall::OnWriteDone(bool ok) {
  if (!ok) return Cancelled();
  context().data_executor->Post(
      [self = std::static_pointer_cast<ReadCall>(shared_from_this())] { self->Pump(); });
}

}  // namespace sparsefw::server
