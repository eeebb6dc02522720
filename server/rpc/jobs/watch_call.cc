#include "server/rpc/jobs/watch_call.h"

#include "server/failpoint/failpoint.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/runtime/tenant_view.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr absl::Duration kDefaultInterval = absl::Seconds(10);
constexpr absl::Duration kMinInterval = absl::Milliseconds(100);

absl::StatusOr<std::chrono::nanoseconds> Interval(const v1::WatchJobRequest& request) {
  absl::Duration interval = kDefaultInterval;
  if (request.has_heartbeat_interval()) {
    SPARSEFW_ASSIGN_OR_RETURN(interval,
                              FromProto(request.heartbeat_interval(), "heartbeat_interval"));
  }
  if (interval < kMinInterval) {
    return Invalid("OPTION_INVALID", "heartbeat_interval must be at least 100ms; got %s",
                   absl::FormatDuration(interval));
  }
  // Bounded, since it must fit the clock's nanoseconds.
  return absl::ToChronoNanoseconds(std::min(interval, absl::Hours(24)));
}

}  // namespace

WatchCall::WatchCall(RpcContext& context, grpc::CallbackServerContext* rpc)
    : OneRequestCall(context, "PruneService/WatchJob", rpc) {
  context.watchers.fetch_add(1);
}

WatchCall::~WatchCall() { context().watchers.fetch_sub(1); }

void WatchCall::Begin() {
  // A job that has ended is read from the store.
  Queue(context().threads->quick, Executor::Entry::kNew, [this] {
    if (const absl::Status status = Watch(); status.ok()) {
      ScheduleHeartbeat(interval_);
    } else {
      Close(status);
    }
    return false;
  });
}

absl::Status WatchCall::Watch() {
  const v1::WatchJobRequest& request = this->request();
  if (request.after_revision() < 0) {
    return Invalid("OPTION_INVALID", "after_revision must be at least 0; got %d",
                   request.after_revision());
  }
  SPARSEFW_ASSIGN_OR_RETURN(interval_, Interval(request));
  const auto wake = [this, weak = weak_from_this()] {
    if (const auto self = weak.lock()) Pump();
  };
  SPARSEFW_ASSIGN_OR_RETURN(
      std::shared_ptr<EventQueue> events,
      WithJob(*context().jobs, tenant(), request.name(), [&](std::string_view name) {
        return context().jobs->Watch(name, request.after_revision(), wake);
      }));
  {
    MutexLock lock(mutex_);
    last_write_ = Clock::now();
    events_ = std::move(events);
  }
  Pump();
  return absl::OkStatus();
}

void WatchCall::Pump() {
  MutexLock lock(mutex_);
  if (events_ == nullptr || closed() || writing_) return;
  if (std::optional<JobEvent> event = events_->Next()) {
    event_ = ToProto(*event);
    last_ = *std::move(event);
    WriteLocked();
  } else if (events_->ended()) {
    CloseLocked(absl::OkStatus());
  } else if (events_->suspended()) {
    CloseLocked(DrainingError());
  }
}

void WatchCall::WriteLocked() {
  // The message, as gRPC sends it, and the job that it was made from.
  absl::StatusOr<HeldBytes> held =
      connection().HoldResponse(static_cast<int64_t>(event_.ByteSizeLong()), 3);
  if (!held.ok()) return CloseLocked(held.status());
  held_ = *std::move(held);
  writing_ = true;
  // Called before the client can know of the mask, and so before it can have read it.
  sent_mask_ = event_.kind() == v1::JobEvent::KIND_HEARTBEAT ? "" : event_.job().result().mask();
  if (!sent_mask_.empty()) context().fetches->Sending(sent_mask_);
  last_write_ = Clock::now();
  Failpoint("watch.send");
  StartWrite(&event_);
}

void WatchCall::OnWriteDone(bool ok) {
  HeldBytes held;  // given back without the lock
  {
    MutexLock lock(mutex_);
    writing_ = false;
    v1::JobEvent().Swap(&event_);
    std::swap(held, held_);
    if (!ok && !sent_mask_.empty()) context().fetches->NotSent(sent_mask_);
  }
  held = HeldBytes();
  if (!ok) return Cancelled();
  Pump();
}

void WatchCall::ScheduleHeartbeat(std::chrono::nanoseconds delay) {
  // The timer of an ended watch fires once more.
  constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(30);
  context().timer->After(std::min(delay, kLongest), [this, weak = weak_from_this()] {
    if (const auto self = weak.lock()) Heartbeat();
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
    } else if (!writing_ && !IsTerminal(last_.job->state)) {
      event_ = HeartbeatAfter(last_);
      WriteLocked();
    }
  }
  ScheduleHeartbeat(next);
}

}  // namespace sparsefw::server
