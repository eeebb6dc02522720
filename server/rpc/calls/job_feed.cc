#include "server/rpc/calls/job_feed.h"

#include "server/rpc/convert/convert.h"

namespace sparsefw::server {
namespace {

v1::JobEvent::Kind KindOf(JobWatcher::Event event) {
  switch (event) {
    case JobWatcher::Event::kSnapshot:
      return v1::JobEvent::SNAPSHOT;
    case JobWatcher::Event::kStateChange:
      return v1::JobEvent::STATE_CHANGE;
    case JobWatcher::Event::kProgress:
      return v1::JobEvent::PROGRESS;
  }
  return v1::JobEvent::KIND_UNSPECIFIED;
}

}  // namespace

void JobFeed::OnJob(Event event, const Job& job) {
  v1::JobEvent proto;
  proto.set_kind(KindOf(event));
  *proto.mutable_job() = ToProto(job);
  {
    MutexLock lock(mutex_);
    latest_ = job;
    if (!pending_.empty() && pending_.back().kind() == v1::JobEvent::PROGRESS) {
      pending_.pop_back();
    }
    pending_.push_back(std::move(proto));
  }
  wake_();
}

std::optional<v1::JobEvent> JobFeed::Next() {
  MutexLock lock(mutex_);
  if (pending_.empty()) return std::nullopt;
  std::optional<v1::JobEvent> event = std::move(pending_.front());
  pending_.pop_front();
  return event;
}

bool JobFeed::ended() const {
  MutexLock lock(mutex_);
  return pending_.empty() && IsTerminal(latest_.state);
}

Job JobFeed::latest() const {
  MutexLock lock(mutex_);
  return latest_;
}

}  // namespace sparsefw::server
