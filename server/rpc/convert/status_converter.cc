#include "server/rpc/convert/status_converter.h"

#include <string>

#include "absl/strings/numbers.h"
#include "google/rpc/error_details.pb.h"
#include "server/metrics/labels.h"
#include "sparsefw/reason.h"

namespace sparsefw::server {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr char kDomain[] = "sparsefw";

// Never in the middle of a UTF-8 sequence: protobuf's string fields would
// refuse the rest.
std::string Bounded(std::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  constexpr std::string_view kEllipsis = "...";
  size_t end = kMaxMessageBytes - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;
  return std::string(message.substr(0, end)).append(kEllipsis);
}

}  // namespace

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status result;
  if (status.ok()) return result;
  result.set_code(static_cast<int>(status.code()));  // gRPC's numbers, by specification
  result.set_message(Bounded(std::string(status.message())));

  google::rpc::ErrorInfo info;
  const std::string reason = ReasonOf(status);
  info.set_reason(reason.empty() ? CodeName(status.code()) : reason);
  info.set_domain(kDomain);
  const ReasonMetadata metadata = ReasonMetadataOf(status);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  result.add_details()->PackFrom(info);

  int64_t delay_ms = 0;
  const auto delay = metadata.find(kRetryDelayKey);
  if (delay != metadata.end() && absl::SimpleAtoi(delay->second, &delay_ms) && delay_ms >= 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(delay_ms / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay_ms % 1000) * 1'000'000);
    result.add_details()->PackFrom(retry);
  }
  return result;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status detailed = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(detailed.code()), detailed.message(),
                      detailed.SerializeAsString());
}

}  // namespace sparsefw::server
