#include "server/metrics/labels.h"

#include <algorithm>

#include "sparsefw/reason.h"
#include "sparsefw/solver.h"

namespace sparsefw::server {
namespace {

template <size_t n>
size_t IndexOrLast(const std::array<std::string_view, n>& values, std::string_view value) {
  const auto found = std::find(values.begin(), values.end() - 1, value);
  return static_cast<size_t>(found - values.begin());
}

}  // namespace

size_t RpcMethodIndex(std::string_view method) { return IndexOrLast(kRpcMethods, method); }

std::string CodeName(absl::StatusCode code) {
  const std::string name = absl::StatusCodeToString(code);
  return name.empty() ? "UNKNOWN" : name;
}

std::string_view ReasonLabel(std::string_view reason) {
  const ReasonInfo* known = FindReason(reason);
  return known != nullptr && known->kind == ReasonKind::kSeries ? known->name : kOther;
}

std::string_view DeviceLabel(std::string_view device) {
  const std::string_view kind = device.substr(0, device.find(':'));
  static constexpr std::array<std::string_view, 4> kDevices = {"cpu", "cuda", "reference", kOther};
  return kDevices[IndexOrLast(kDevices, kind)];
}

std::string ErrorLabel(const absl::Status& error) {
  const std::string_view label = ReasonLabel(ReasonOf(error));
  return label == kOther ? CodeName(error.code()) : std::string(label);
}

std::string EndReasonLabel(const Job& job) {
  if (job.state == JobState::kCancelled) return "CANCELLED";
  if (job.state == JobState::kSucceeded) {
    return std::string(job.result ? NameOf(job.result->solve.stop_cause) : kOther);
  }
  return ErrorLabel(job.error);
}

}  // namespace sparsefw::server
