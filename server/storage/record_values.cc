#include "server/storage/record_values.h"

#include <string>

#include "absl/strings/cord.h"

namespace sparsefw::server {
namespace {

// absl's own resolution.
const absl::Duration kTick = absl::Nanoseconds(1) / 4;

template <typename A, typename B>
constexpr bool Same(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(Same(JobState::kQueued, records::QUEUED));
static_assert(Same(JobState::kRunning, records::RUNNING));
static_assert(Same(JobState::kSucceeded, records::SUCCEEDED));
static_assert(Same(JobState::kFailed, records::FAILED));
static_assert(Same(JobState::kCancelled, records::CANCELLED));
static_assert(Same(Pattern::Kind::kUnstructured, records::UNSTRUCTURED));
static_assert(Same(Pattern::Kind::kPerRow, records::PER_ROW));
static_assert(Same(Pattern::Kind::kKeepOfGroup, records::KEEP_OF_GROUP));
static_assert(Same(SweepKeep::kBest, records::BEST));
static_assert(Same(SweepKeep::kAll, records::ALL));
static_assert(Same(StopCause::kIterations, records::ITERATIONS));
static_assert(Same(StopCause::kGap, records::GAP));
static_assert(Same(StopCause::kDeadline, records::DEADLINE));
static_assert(Same(StopCause::kCancelled, records::CANCELLED_BY_CALLER));
static_assert(Same(CandidateKind::kWarmStart, records::WARM_START));
static_assert(Same(CandidateKind::kRounded, records::ROUNDED));
static_assert(Same(CandidateKind::kRefined, records::REFINED));
static_assert(Same(CandidateKind::kJoint, records::JOINT));

}  // namespace

records::Duration ToRecord(absl::Duration duration) {
  records::Duration record;
  if (duration == absl::InfiniteDuration()) {
    record.set_infinite(records::Duration::FUTURE);
    return record;
  }
  if (duration == -absl::InfiniteDuration()) {
    record.set_infinite(records::Duration::PAST);
    return record;
  }
  absl::Duration rest;
  int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &rest);
  if (rest < absl::ZeroDuration()) {
    --seconds;
    rest += absl::Seconds(1);
  }
  absl::Duration none;
  record.set_seconds(seconds);
  record.set_quarter_nanoseconds(static_cast<uint32_t>(absl::IDivDuration(rest, kTick, &none)));
  return record;
}

records::Duration ToRecord(absl::Time time) { return ToRecord(time - absl::UnixEpoch()); }

absl::Duration DurationOf(const records::Duration& record) {
  switch (record.infinite()) {
    case records::Duration::FUTURE:
      return absl::InfiniteDuration();
    case records::Duration::PAST:
      return -absl::InfiniteDuration();
    default:
      return absl::Seconds(record.seconds()) + record.quarter_nanoseconds() * kTick;
  }
}

absl::Time TimeOf(const records::Duration& record) {
  return absl::UnixEpoch() + DurationOf(record);
}

records::Status ToRecord(const absl::Status& status) {
  records::Status record;
  record.set_code(status.raw_code());
  record.set_message(std::string(status.message()));
  status.ForEachPayload([&record](absl::string_view url, const absl::Cord& value) {
    records::Status::Payload& payload = *record.add_payloads();
    payload.set_url(std::string(url));
    payload.set_value(std::string(value));
  });
  return record;
}

absl::Status StatusOf(const records::Status& record) {
  absl::Status status(static_cast<absl::StatusCode>(record.code()), record.message());
  for (const records::Status::Payload& payload : record.payloads()) {
    status.SetPayload(payload.url(), absl::Cord(payload.value()));
  }
  return status;
}

}  // namespace sparsefw::server
