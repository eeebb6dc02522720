#include <algorithm>

#include "absl/strings/ascii.h"
#include "server/rpc/convert/convert.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

// The range of google.protobuf.Duration: 10 000 years.
constexpr int64_t kMaxDurationSeconds = 315'576'000'000;
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxOwnerBytes = 256;
constexpr int kMaxLabels = 64;

}  // namespace

absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto,
                                         std::string_view field) {
  const bool in_range = proto.seconds() >= -kMaxDurationSeconds &&
                        proto.seconds() <= kMaxDurationSeconds && proto.nanos() > -1'000'000'000 &&
                        proto.nanos() < 1'000'000'000;
  const bool same_sign =
      (proto.seconds() >= 0 || proto.nanos() <= 0) && (proto.seconds() <= 0 || proto.nanos() >= 0);
  if (!in_range || !same_sign) {
    return Invalid("DURATION_INVALID", "%s must be a valid Duration; got seconds=%d, nanos=%d",
                   field, proto.seconds(), proto.nanos());
  }
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &rest);
  if (seconds > kMaxDurationSeconds || seconds < -kMaxDurationSeconds) {
    proto.set_seconds(seconds > 0 ? kMaxDurationSeconds : -kMaxDurationSeconds);
    return proto;
  }
  proto.set_seconds(seconds);
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp proto;
  const int64_t seconds = absl::ToUnixSeconds(time);
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

absl::StatusOr<int> PageSize(int32_t requested) {
  if (requested < 0) {
    return Invalid("PAGE_SIZE_INVALID", "page_size must be at least 0; got %d", requested);
  }
  if (requested == 0) return kDefaultPageSize;
  return requested < kMaxPageSize ? requested : kMaxPageSize;
}

absl::Status CheckLength(Reason reason, std::string_view field, std::string_view text,
                         size_t max_bytes) {
  if (text.size() <= max_bytes) return absl::OkStatus();
  return Invalid(reason, "%s must be at most %d bytes; got %d", field, max_bytes, text.size());
}

absl::Status CheckNoControls(Reason reason, std::string_view field, std::string_view text) {
  const auto found = std::ranges::find_if(text, &absl::ascii_iscntrl);
  if (found == text.end()) return absl::OkStatus();
  return Invalid(reason, "%s must have no control characters; got 0x%02x at byte %d", field,
                 int{*found}, found - text.begin());
}

absl::Status CheckLabelCount(int count) {
  if (count <= kMaxLabels) return absl::OkStatus();
  return Invalid("LABELS_INVALID", "labels must be at most %d; got %d", kMaxLabels, count);
}

absl::Status CheckRequestId(std::string_view request_id) {
  SPARSEFW_RETURN_IF_ERROR(
      CheckLength("REQUEST_ID_INVALID", "request_id", request_id, kMaxRequestIdBytes));
  return CheckNoControls("REQUEST_ID_INVALID", "request_id", request_id);
}

absl::Status CheckOwner(std::string_view owner) {
  return CheckLength("OWNER_INVALID", "owner", owner, kMaxOwnerBytes);
}

}  // namespace sparsefw::server
