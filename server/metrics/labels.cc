#include "server/metrics/labels.h"

#include <algorithm>

#include "sparsefw/names.h"
#include "sparsefw/status_reason.h"

namespace sparsefw::server {
namespace {

template <size_t n>
size_t IndexOrLast(const std::array<std::string_view, n>& values, std::string_view value) {
  const auto found = std::find(values.begin(), values.end() - 1, value);
  return static_cast<size_t>(found - values.begin());
}

// The stable reasons with which a chunk can be refused or a job can fail.
constexpr std::array<std::string_view, 39> kReasons = {
    "CHECKSUM_MISMATCH",
    "CHUNK_TOO_LARGE",
    "DEADLINE_EXCEEDED",
    "DEVICE_LOST",
    "DEVICE_MEMORY",
    "DEVICE_UNAVAILABLE",
    "DRAINING",
    "DTYPE_UNSUPPORTED",
    "ENUM_UNKNOWN",
    "GRAM_ASYMMETRIC",
    "GRAM_NEGATIVE_DIAGONAL",
    "GRAM_NOT_POSITIVE_DEFINITE",
    "HOST_MEMORY",
    "INCOMPLETE",
    "MASK_PADDING",
    "NON_FINITE",
    "OFFSET_GAP",
    "OFFSET_INVALID",
    "OFFSET_OUT_OF_RANGE",
    "OPTION_INVALID",
    "OUT_OF_MEMORY",
    "PARTIAL_TOKEN",
    "PATTERN_INVALID",
    "QUOTA_TENSOR_BYTES",
    "QUOTA_UPLOADS",
    "SHAPE_MISMATCH",
    "SPEC_INVALID",
    "SPOOL_FAILED",
    "SPOOL_FULL",
    "STREAM_INCOMPLETE",
    "STREAM_ORDER",
    "TARGET_INVALID",
    "TENSOR_NOT_FOUND",
    "TENSOR_TOO_LARGE",
    "UPLOAD_NOT_FOUND",
    "WARM_MASK_COUNT",
    "WRONG_TENSOR_KIND",
    "WRONG_UPLOAD_KIND",
    kOther,
};

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

std::string_view EndReasonLabel(const Job& job) {
  if (job.state == JobState::kCancelled) return "CANCELLED";
  if (job.state == JobState::kSucceeded) {
    return job.result ? NameOf(job.result->solve.stop_cause) : kOther;
  }
  const size_t reason = IndexOrLast(kReasons, ReasonOf(job.error));
  if (reason + 1 < kReasons.size()) return kReasons[reason];
  return CodeName(job.error.code());
}

}  // namespace sparsefw::server
