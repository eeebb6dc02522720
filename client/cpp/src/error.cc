#include "sparsefw/client/error.h"

#include <grpcpp/support/status.h>

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "sparsefw/client/printable.h"
#include "sparsefw/reason.h"

namespace sparsefw::client {
namespace {

constexpr char kRetryDelayUrl[] = "sparsefw/retry_delay_ns";

// WithReason carries single lines only.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

absl::Status AddDetails(absl::Status status, const google::rpc::Status& proto) {
  for (const auto& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info)) {
      ReasonMetadata metadata;
      for (const auto& [key, value] : info.metadata()) {
        if (key.find_first_of("=\n") == std::string::npos) metadata[key] = OneLine(value);
      }
      status = WithReasonText(std::move(status), OneLine(info.reason()), metadata);
    } else if (detail.UnpackTo(&retry)) {
      const absl::Duration delay = absl::Seconds(retry.retry_delay().seconds()) +
                                   absl::Nanoseconds(retry.retry_delay().nanos());
      status.SetPayload(kRetryDelayUrl,
                        absl::Cord(absl::StrFormat("%d", absl::ToInt64Nanoseconds(delay))));
    }
  }
  return status;
}

}  // namespace

absl::Status StatusFromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      Printable(status.error_message()));
  google::rpc::Status proto;
  if (!status.error_details().empty() && proto.ParseFromString(status.error_details())) {
    result = AddDetails(std::move(result), proto);
  }
  return result;
}

absl::Status StatusFromProto(const google::rpc::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  return AddDetails(
      absl::Status(static_cast<absl::StatusCode>(status.code()), Printable(status.message())),
      status);
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryDelayUrl);
  int64_t nanoseconds = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &nanoseconds)) return std::nullopt;
  return absl::Nanoseconds(std::max<int64_t>(nanoseconds, 0));
}

bool IsTransient(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return true;
  if (absl::IsResourceExhausted(status)) return RetryDelayOf(status).has_value();
  // Errors of the server have a reason. Without one these come from gRPC: a
  // server that is being shut down cancels its calls, and a connection that
  // breaks inside a response is INTERNAL.
  if (!ReasonOf(status).empty()) return false;
  return absl::IsCancelled(status) ||
         (absl::IsInternal(status) && absl::StrContains(status.message(), "RST_STREAM"));
}

absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status result(status.code(), absl::string_view(message.data(), message.size()));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace sparsefw::client
