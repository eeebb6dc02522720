// Client::WaitJob.
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/src/known_job.h"
#include "client/cpp/src/rpc.h"
#include "client/cpp/src/silence_guard.h"
#include "sparsefw/client/client.h"
#include "sparsefw/client/error.h"
#include "sparsefw/client/job_state.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::client {
namespace {

// One job followed over as many streams as it takes.
class Watch {
 public:
  Watch(const internal::Rpc& rpc, const std::string& name, const JobCallback& on_event,
        const CallOptions& call, int64_t after_revision)
      : rpc_(rpc), on_event_(on_event), call_(call) {
    request_.set_name(name);
    request_.set_after_revision(after_revision);
    // The server takes a day for "never".
    const absl::Duration interval = std::min(rpc.options().watch_silence / 3, absl::Hours(24));
    const int64_t seconds = absl::ToInt64Seconds(interval);
    request_.mutable_heartbeat_interval()->set_seconds(seconds);
    request_.mutable_heartbeat_interval()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(interval - absl::Seconds(seconds))));
  }

  // Reads one stream to its end, or to the end of the job.
  absl::Status Follow() {
    events_ = 0;
    grpc::ClientContext context;
    rpc_.AddMetadata(&context);
    const internal::CancelOnStop cancel(call_, &context);
    internal::SilenceGuard guard(rpc_.options().watch_silence, &context);
    const auto stream = rpc_.jobs().WatchJob(&context, request_);
    v1::JobEvent event;
    while (stream->Read(&event)) {
      ++events_;
      guard.Heard();
      request_.set_after_revision(
          std::max<int64_t>(request_.after_revision(), event.job().revision()));
      known_.Complete(event.mutable_job());
      if (on_event_) on_event_(event);
      if (IsTerminal(event.job().state())) {
        ended_ = std::move(*event.mutable_job());
        // There is nothing more to come; leaving never cancels the job.
        context.TryCancel();
        stream->Finish();
        return absl::OkStatus();
      }
    }
    const absl::Status status = rpc_.StreamStatus(stream->Finish(), call_);
    if (!guard.silent() || call_.stop.stop_requested()) return status;
    return Refuse(absl::StatusCode::kUnavailable, "UNREACHABLE",
                  "nothing came on the watch of %s for %s", request_.name(),
                  absl::FormatDuration(rpc_.options().watch_silence));
  }

  // The server does not know the revision that was seen: the job is read anew.
  // False where none was.
  bool StartOver() {
    if (request_.after_revision() == 0) return false;
    request_.set_after_revision(0);
    return true;
  }

  const std::optional<v1::Job>& ended() const { return ended_; }
  bool heard_something() const { return events_ > 0; }

 private:
  const internal::Rpc& rpc_;
  const JobCallback& on_event_;
  const CallOptions& call_;
  v1::WatchJobRequest request_;
  internal::KnownJob known_;
  int64_t events_ = 0;
  std::optional<v1::Job> ended_;
};

}  // namespace

absl::StatusOr<v1::Job> Client::WaitJob(const std::string& name, const JobCallback& on_event,
                                        const CallOptions& call, int64_t after_revision) {
  Watch watch(*rpc_, name, on_event, call, after_revision);
  Backoff backoff = rpc_->NewBackoff();
  for (;;) {
    absl::Status status = watch.Follow();
    if (watch.ended()) return *watch.ended();
    // Only as the first answer: after an event it would begin the same stream again for ever.
    if (HasReason(status, "REVISION_UNKNOWN") && !watch.heard_something() && watch.StartOver()) {
      continue;
    }
    if (!status.ok() && !IsTransient(status)) return status;
    if (watch.heard_something()) backoff.Reset(absl::Now());
    if (status.ok()) {
      // A server may end a watch at any time. That is no error, yet waiting
      // keeps one that does so at once from making this a busy loop.
      status = Refuse(absl::StatusCode::kUnavailable, "PROTOCOL",
                      "the watch of %s ended before the job did", name);
    }
    SPARSEFW_RETURN_IF_ERROR(rpc_->WaitToRetry(status, backoff, call));
  }
}

}  // namespace sparsefw::client
