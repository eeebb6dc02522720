#include "sparsefw/reason.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"

namespace sparsefw {
namespace {

// Payload: the reason, then one "key=value" a line.
constexpr char kTypeUrl[] = "sparsefw/reason";

std::optional<std::string> Payload(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace

absl::Status WithReason(absl::Status status, Reason reason, const ReasonMetadata& metadata) {
  return WithReasonText(std::move(status), reason.name(), metadata);
}

absl::Status WithReasonText(absl::Status status, std::string_view reason,
                            const ReasonMetadata& metadata) {
  std::string payload(reason);
  for (const auto& [key, value] : metadata) {
    // A name that a client made up must not become a line of its own.
    std::string line = key + "=" + value;
    std::ranges::replace(line, '\n', ' ');
    payload += "\n" + line;
  }
  status.SetPayload(kTypeUrl, absl::Cord(std::move(payload)));
  return status;
}

absl::Status WithMetadata(absl::Status status, std::string_view key, std::string_view value) {
  ReasonMetadata metadata = ReasonMetadataOf(status);
  metadata[std::string(key)] = std::string(value);
  const std::string reason = ReasonOf(status);
  return WithReasonText(std::move(status), reason, metadata);
}

bool HasReason(const absl::Status& status, Reason reason) {
  return ReasonOf(status) == reason.name();
}

std::string ReasonOf(const absl::Status& status) {
  const auto payload = Payload(status);
  return payload ? payload->substr(0, payload->find('\n')) : std::string();
}

ReasonMetadata ReasonMetadataOf(const absl::Status& status) {
  ReasonMetadata metadata;
  const auto payload = Payload(status);
  if (!payload) return metadata;
  size_t start = payload->find('\n');
  while (start != std::string::npos) {
    const size_t end = payload->find('\n', start + 1);
    const std::string line = payload->substr(start + 1, end - start - 1);
    const size_t equals = line.find('=');
    if (equals != std::string::npos) metadata[line.substr(0, equals)] = line.substr(equals + 1);
    start = end;
  }
  return metadata;
}

}  // namespace sparsefw
