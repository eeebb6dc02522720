#include "server/metrics/labels.h"

#include <algorithm>

#include "sparsefw/solver.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

template <size_t n>
size_t IndexOrLast(const std::array<std::string_view, n>& values, std::string_view value) {
  const auto found = std::find(values.begin(), values.end() - 1, value);
  return static_cast<size_t>(found - values.begin());
}

// The stable reasons with which a call or a chunk can be refused or a job can fail
// (docs/api.md), as far as they are worth a series.
constexpr auto kReasons = std::to_array<std::string_view>({
    "ATTEMPTS_EXHAUSTED",
    "CHECKSUM_MISMATCH",
    "CHUNK_TOO_LARGE",
    "CREDENTIALS_EXPIRED",
    "CREDENTIALS_INVALID",
    "CREDENTIALS_MISSING",
    "DEADLINE_EXCEEDED",
    "DEVICE_LOST",
    "DEVICE_MEMORY",
    "DEVICE_UNAVAILABLE",
    "DISK_BUDGET",
    "DRAINING",
    "DTYPE_UNSUPPORTED",
    "ENUM_UNKNOWN",
    "GRAM_ASYMMETRIC",
    "GRAM_NEGATIVE_DIAGONAL",
    "GRAM_NOT_POSITIVE_DEFINITE",
    "HOST_MEMORY",
    "INCOMPLETE",
    "JOBS_FULL",
    "JOB_DAMAGED",
    "JOB_NOT_FINISHED",
    "JOB_NOT_FOUND",
    "LABELS_INVALID",
    "MASK_PADDING",
    "MESSAGE_INVALID",
    "NON_FINITE",
    "OFFSET_GAP",
    "OFFSET_INVALID",
    "OFFSET_OUT_OF_RANGE",
    "OPTION_INVALID",
    "OUT_OF_MEMORY",
    "PARTIAL_TOKEN",
    "PATTERN_INVALID",
    "PEER_MEMORY",
    "PRIORITY_NOT_ALLOWED",
    "QUEUE_FULL",
    "QUOTA_JOB_BYTES",
    "QUOTA_QUEUED_JOBS",
    "QUOTA_TENSORS",
    "QUOTA_TENSOR_BYTES",
    "QUOTA_UPLOADS",
    "REQUEST_ID_REUSED",
    "REQUEST_INCOMPLETE",
    "SHAPE_MISMATCH",
    "SPEC_INVALID",
    "SPOOL_FAILED",
    "SPOOL_FULL",
    "STORE_CORRUPT",
    "STORE_FAILED",
    "STORE_FULL",
    "STREAM_INCOMPLETE",
    "STREAM_LOST",
    "STREAM_ORDER",
    "TARGET_INVALID",
    "TENANT_MISMATCH",
    "TENANT_NOT_ALLOWED",
    "TENSOR_CORRUPT",
    "TENSOR_IN_USE",
    "TENSOR_NOT_FOUND",
    "TENSOR_TOO_LARGE",
    "TOO_MANY_CALLS",
    "TOO_MANY_TENSORS",
    "UPLOAD_NOT_FOUND",
    "WARM_MASK_COUNT",
    "WRONG_TENSOR_KIND",
    "WRONG_UPLOAD_KIND",
    kOther,
});

}  // namespace

size_t RpcMethodIndex(std::string_view method) { return IndexOrLast(kRpcMethods, method); }

size_t CodeIndex(std::string_view code) { return IndexOrLast(kCodes, code); }

std::string_view CodeName(absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return kCodes[index + 1 < kCodes.size() ? index
                                          : static_cast<size_t>(absl::StatusCode::kUnknown)];
}

std::string_view ChunkReasonLabel(std::string_view reason) {
  return kReasons[IndexOrLast(kReasons, reason)];
}

std::string_view DeviceLabel(std::string_view device) {
  const std::string_view kind = device.substr(0, device.find(':'));
  static constexpr std::array<std::string_view, 4> kDevices = {"cpu", "cuda", "reference", kOther};
  return kDevices[IndexOrLast(kDevices, kind)];
}

std::string_view ErrorLabel(const absl::Status& error) {
  const size_t reason = IndexOrLast(kReasons, ReasonOf(error));
  if (reason + 1 < kReasons.size()) return kReasons[reason];
  return CodeName(error.code());
}

std::string_view EndReasonLabel(const Job& job) {
  if (job.state == JobState::kCancelled) return "CANCELLED";
  if (job.state == JobState::kSucceeded) {
    return job.result ? NameOf(job.result->solve.stop_cause) : kOther;
  }
  return ErrorLabel(job.error);
}

}  // namespace sparsefw::server
