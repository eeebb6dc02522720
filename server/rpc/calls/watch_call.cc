#include "server/rpc/calls/watch_call.h"

#include "server/rpc/convert/convert.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kDefaultInterval = absl::Seconds(10);
constexpr absl::Duration kMinInterval = absl::Milliseconds(100);

absl::StatusOr<std::chrono::nanoseconds> Interval(const v1::WatchJobRequest& request) {
  SPARSEFW_ASSIGN_OR_RETURN(absl::Duration interval,
                            FromProto(request.heartbeat_interval(), "heartbeat_interval"));
  if (interval == absl::ZeroDuration()) interval = kDefaultInterval;
  if (interval < kMinInterval) {
    return Invalid("OPTION_INVALID", "heartbeat_interval must be 0 or at least 100ms; got %s",
                   absl::FormatDuration(interval));
  }
  // Beyond this it is never; and it must fit the clock's nanoseconds.
  return absl::ToChronoNanoseconds(std::min(interval, absl::Hours(24)));
}

}  // namespace

WatchCall::WatchCall(RpcContext& context, grpc::CallbackServerContext* rpc)
    : Call(context, "PruneService/WatchJob", rpc) {
  context.watchers.fetch_add(1);
}

WatchCall::~WatchCall() { context().watchers.fetch_sub(1); }

void WatchCall::Start(const v1::WatchJobRequest& request) {
  if (!Open()) return;
  if (const absl::Status status = Watch(request); !status.ok()) return Close(status);
  ScheduleHeartbeat(interval_);
}

absl::Status WatchCall::Watch(const v1::WatchJobRequest& request) {
  if (request.after_revision() < 0) {
    return Invalid("OPTION_INVALID", "after_revision must be at least 0; got %d",
                   request.after_revision());
  }
  SPARSEFW_ASSIGN_OR_RETURN(interval_, Interval(request));
  {
    MutexLock lock(mutex_);
    last_write_ = Clock::now();
    feed_ = std::make_shared<JobFeed>(
        [weak = std::weak_ptr<WatchCall>(std::static_pointer_cast<WatchCall>(shared_from_this()))] {
          if (const auto self = weak.lock()) self->Pump();
        });
  }
  SPARSEFW_ASSIGN_OR_RETURN(watch_id_,
                            context().jobs->Watch(request.name(), feed_, request.after_revision()));
  return absl::OkStatus();
}

void WatchCall::Pump() {
  MutexLock lock(mutex_);
  if (closed() || writing_) return;
  if (std::optional<v1::JobEvent> event = feed_->Next()) {
    event_ = *std::move(event);
    WriteLocked();
  } else if (feed_->ended()) {
    CloseLocked(absl::OkStatus());
  }
}

void WatchCall::WriteLocked() {
  writing_ = true;
  last_write_ = Clock::now();
  StartWrite(&event_);
}

void WatchCall::OnWriteDone(bool ok) {
  std::optional<std::string> ended_with_mask;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    const std::string& mask = event_.job().result().mask();
    if (event_.kind() != v1::JobEvent::HEARTBEAT && !mask.empty()) ended_with_mask = mask;
  }
  if (!ok) return Cancelled();
  if (ended_with_mask) context().fetches->Told(*ended_with_mask);
  Pump();
}

void WatchCall::ScheduleHeartbeat(std::chrono::nanoseconds delay) {
  // An ended watch keeps its memory until its timer fires: not for long.
  constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(30);
  context().timer->After(
      std::min(delay, kLongest),
      [weak = std::weak_ptr<WatchCall>(std::static_pointer_cast<WatchCall>(shared_from_this()))] {
        if (const auto self = weak.lock()) self->Heartbeat();
      });
}

void WatchCall::Heartbeat() {
  std::chrono::nanoseconds next = interval_;
  {
    MutexLock lock(mutex_);
    if (closed()) return;
    const auto quiet = Clock::now() - last_write_;
    if (quiet < interval_) {
      next = interval_ - quiet;
    } else if (!writing_) {
      event_.Clear();
      event_.set_kind(v1::JobEvent::HEARTBEAT);
      *event_.mutable_job() = ToProto(feed_->latest());
      WriteLocked();
    }
  }
  ScheduleHeartbeat(next);
}

void WatchCall::OnDone() {
  if (watch_id_ >= 0) context().jobs->Unwatch(watch_id_);
  Done();
}

}  // namespace sparsefw::server
