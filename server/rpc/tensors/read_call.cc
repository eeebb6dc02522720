#include "server/rpc/tensors/read_call.h"

#include <utility>

namespace sparsefw::server {

void ReadCall::Begin() {
  Queue(context().threads->data, Executor::Entry::kNew, [this] {
    if (const absl::Status status = OpenTensor(); status.ok()) {
      Pump();
    } else {
      Close(status);
    }
    return false;
  });
}

absl::Status ReadCall::OpenTensor() {
  std::optional<int64_t> limit;
  if (request().has_limit()) limit = request().limit();
  SPARSEFW_ASSIGN_OR_RETURN(ChunkReader reader,
                            ChunkReader::Open(*context().tensors, tenant(), request().name(),
                                              request().offset(), limit, &ended()));
  reader_.emplace(std::move(reader));
  return absl::OkStatus();
}

void ReadCall::Pump() {
  if (reader_->at_end()) {
    // Released before the client hears of the end: a drain that waits for it may end.
    ReleaseTensor();
    return Close(absl::OkStatus());
  }
  const int64_t size = reader_->NextMessage(v1::ReadTensorResponse::kChunkFieldNumber, &response_);
  {
    MutexLock lock(mutex_);
    if (closed()) return;
    StartWrite(&response_);
  }
  connection().Sent(size);
  context().metrics->BytesSent(method(), size);
}

void ReadCall::ReleaseTensor() {
  if (!reader_.has_value()) return;
  if (reader_->complete()) context().fetches->Fetched(reader_->name());
  reader_.reset();
}

void ReadCall::OnWriteDone(bool ok) {
  if (!ok) return Cancelled();
  Queue(context().threads->data, Executor::Entry::kFollows, [this] {
    Pump();
    return false;
  });
}

}  // namespace sparsefw::server
