// A stable machine-readable reason on an absl::Status, beside its message; the list of all reasons.
//
// People read the message; programs branch on the reason ("OFFSET_GAP") and on
// the metadata ("committed_size" -> "4096"). The RPC edge turns both into a
// google.rpc.ErrorInfo.
#ifndef SPARSEFW_REASON_H_
#define SPARSEFW_REASON_H_

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace sparsefw {

enum class ReasonKind {
  kSeries,  // of calls, chunks and jobs: metrics count it by name
  kPlain,   // metrics count it by its status code, if at all
  kClient,  // of the client and of its files
};

struct ReasonInfo {
  std::string_view name;
  ReasonKind kind;
};

// All but those of the client go over the wire as they are. docs/errors.md says what each means.
inline constexpr auto kReasons = std::to_array<ReasonInfo>({
    {"ATTEMPTS_EXHAUSTED", ReasonKind::kSeries},
    {"CHECKSUM_MISMATCH", ReasonKind::kSeries},
    {"CREDENTIALS_EXPIRED", ReasonKind::kSeries},
    {"CREDENTIALS_INVALID", ReasonKind::kSeries},
    {"CREDENTIALS_MISSING", ReasonKind::kSeries},
    {"DEADLINE_EXCEEDED", ReasonKind::kSeries},
    {"DEVICE_LOST", ReasonKind::kSeries},
    {"DEVICE_MEMORY", ReasonKind::kSeries},
    {"DEVICE_UNAVAILABLE", ReasonKind::kSeries},
    {"DISK_BUDGET", ReasonKind::kSeries},
    {"DRAINING", ReasonKind::kSeries},
    {"DTYPE_UNSUPPORTED", ReasonKind::kSeries},
    {"ENUM_UNKNOWN", ReasonKind::kSeries},
    {"GRAM_ASYMMETRIC", ReasonKind::kSeries},
    {"GRAM_NEGATIVE_DIAGONAL", ReasonKind::kSeries},
    {"GRAM_NOT_POSITIVE_DEFINITE", ReasonKind::kSeries},
    {"HOST_MEMORY", ReasonKind::kSeries},
    {"INCOMPLETE", ReasonKind::kSeries},
    {"JOBS_FULL", ReasonKind::kSeries},
    {"JOB_DAMAGED", ReasonKind::kSeries},
    {"JOB_NOT_FINISHED", ReasonKind::kSeries},
    {"JOB_NOT_FOUND", ReasonKind::kSeries},
    {"LABELS_INVALID", ReasonKind::kSeries},
    {"MASK_PADDING", ReasonKind::kSeries},
    {"MESSAGE_INVALID", ReasonKind::kSeries},
    {"NON_FINITE", ReasonKind::kSeries},
    {"OFFSET_GAP", ReasonKind::kSeries},
    {"OFFSET_INVALID", ReasonKind::kSeries},
    {"OFFSET_OUT_OF_RANGE", ReasonKind::kSeries},
    {"OPTION_INVALID", ReasonKind::kSeries},
    {"OUT_OF_MEMORY", ReasonKind::kSeries},
    {"PARTIAL_TOKEN", ReasonKind::kSeries},
    {"PATTERN_INVALID", ReasonKind::kSeries},
    {"PEER_MEMORY", ReasonKind::kSeries},
    {"PRIORITY_NOT_ALLOWED", ReasonKind::kSeries},
    {"QUEUE_FULL", ReasonKind::kSeries},
    {"QUOTA_JOB_BYTES", ReasonKind::kSeries},
    {"QUOTA_QUEUED_JOBS", ReasonKind::kSeries},
    {"QUOTA_TENSORS", ReasonKind::kSeries},
    {"QUOTA_TENSOR_BYTES", ReasonKind::kSeries},
    {"QUOTA_UPLOADS", ReasonKind::kSeries},
    {"REQUEST_ID_REUSED", ReasonKind::kSeries},
    {"REQUEST_INCOMPLETE", ReasonKind::kSeries},
    {"SHAPE_MISMATCH", ReasonKind::kSeries},
    {"SPEC_INVALID", ReasonKind::kSeries},
    {"SPOOL_FAILED", ReasonKind::kSeries},
    {"SPOOL_FULL", ReasonKind::kSeries},
    {"STORE_CORRUPT", ReasonKind::kSeries},
    {"STORE_FAILED", ReasonKind::kSeries},
    {"STORE_FULL", ReasonKind::kSeries},
    {"STREAM_INCOMPLETE", ReasonKind::kSeries},
    {"STREAM_LOST", ReasonKind::kSeries},
    {"STREAM_ORDER", ReasonKind::kSeries},
    {"TARGET_INVALID", ReasonKind::kSeries},
    {"TENANT_MISMATCH", ReasonKind::kSeries},
    {"TENANT_NOT_ALLOWED", ReasonKind::kSeries},
    {"TENSOR_CORRUPT", ReasonKind::kSeries},
    {"TENSOR_IN_USE", ReasonKind::kSeries},
    {"TENSOR_NOT_FOUND", ReasonKind::kSeries},
    {"TENSOR_TOO_LARGE", ReasonKind::kSeries},
    {"TOO_MANY_CALLS", ReasonKind::kSeries},
    {"TOO_MANY_TENSORS", ReasonKind::kSeries},
    {"UPLOAD_NOT_FOUND", ReasonKind::kSeries},
    {"WARM_MASK_COUNT", ReasonKind::kSeries},
    {"WRONG_TENSOR_KIND", ReasonKind::kSeries},
    {"WRONG_UPLOAD_KIND", ReasonKind::kSeries},

    {"ADDRESS_UNAVAILABLE", ReasonKind::kPlain},
    {"BYTES_DIFFER", ReasonKind::kPlain},
    {"CANCELLED", ReasonKind::kPlain},
    {"CHECKPOINT_FAILED", ReasonKind::kPlain},
    {"CHECKPOINT_INVALID", ReasonKind::kPlain},
    {"CONFIGURATION_INVALID", ReasonKind::kPlain},
    {"DURATION_INVALID", ReasonKind::kPlain},
    {"GRAM_STATE_INVALID", ReasonKind::kPlain},
    {"NAME_REQUIRED", ReasonKind::kPlain},
    {"OWNER_INVALID", ReasonKind::kPlain},
    {"PAGE_SIZE_INVALID", ReasonKind::kPlain},
    {"PAGE_TOKEN_INVALID", ReasonKind::kPlain},
    {"REQUEST_ID_INVALID", ReasonKind::kPlain},
    {"REVISION_UNKNOWN", ReasonKind::kPlain},
    {"SPOOL_IN_USE", ReasonKind::kPlain},
    {"SPOOL_MISMATCH", ReasonKind::kPlain},
    {"STATE_IN_USE", ReasonKind::kPlain},
    {"STORE_VERSION", ReasonKind::kPlain},
    {"TEXT_TOO_LONG", ReasonKind::kPlain},

    {"CLIENT_ARGUMENT", ReasonKind::kClient},
    {"CLIENT_MEMORY", ReasonKind::kClient},
    {"FILE_INVALID", ReasonKind::kClient},
    {"NOT_SERVING", ReasonKind::kClient},
    {"PROTOCOL", ReasonKind::kClient},
    {"STOPPED", ReasonKind::kClient},
    {"TENSOR_AMBIGUOUS", ReasonKind::kClient},
    {"UNREACHABLE", ReasonKind::kClient},
});

// Null where there is no such reason.
constexpr const ReasonInfo* FindReason(std::string_view name) {
  for (const ReasonInfo& reason : kReasons) {
    if (reason.name == name) return &reason;
  }
  return nullptr;
}

// Metadata of an error: the milliseconds after which a caller should try again.
inline constexpr char kRetryDelayKey[] = "retry_delay_ms";
inline constexpr char kRetryDelayMs[] = "1000";

// One of kReasons: a string literal that is not among them does not compile.
class Reason {
 public:
  template <size_t size>
  consteval Reason(
      const char (&name)[size])  // NOLINT: literals become reasons where one is asked for
      : name_(FindReason({name, size - 1})->name) {}
  constexpr std::string_view name() const { return name_; }

 private:
  std::string_view name_;
};

using ReasonMetadata = std::map<std::string, std::string>;

// Returns `status` with the reason attached, replacing one it had. An OK
// status is returned unchanged. Neither keys nor values may contain '\n',
// keys no '='.
absl::Status WithReason(absl::Status status, Reason reason, const ReasonMetadata& metadata = {});
// The same with a reason that came from elsewhere: another status, the wire.
absl::Status WithReasonText(absl::Status status, std::string_view reason,
                            const ReasonMetadata& metadata = {});

// An error with a reason and a formatted message, which names the thing, the
// rule and the value.
template <typename... Args>
absl::Status Refuse(absl::StatusCode code, Reason reason, const absl::FormatSpec<Args...>& format,
                    const Args&... args) {
  return WithReason(absl::Status(code, absl::StrFormat(format, args...)), reason);
}
// The same with InvalidArgument.
template <typename... Args>
absl::Status Invalid(Reason reason, const absl::FormatSpec<Args...>& format, const Args&... args) {
  return Refuse(absl::StatusCode::kInvalidArgument, reason, format, args...);
}

// `status` with one more entry of metadata; reason and other entries stay. An
// OK status is returned unchanged.
absl::Status WithMetadata(absl::Status status, std::string_view key, std::string_view value);

// The same as Refuse for a caller that may try again a second later: a job or an upload may have
// ended by then, or another server started.
template <typename... Args>
absl::Status RefuseForNow(absl::StatusCode code, Reason reason,
                          const absl::FormatSpec<Args...>& format, const Args&... args) {
  return WithMetadata(Refuse(code, reason, format, args...), kRetryDelayKey, kRetryDelayMs);
}

bool HasReason(const absl::Status& status, Reason reason);
// Empty when there is none.
std::string ReasonOf(const absl::Status& status);
ReasonMetadata ReasonMetadataOf(const absl::Status& status);

}  // namespace sparsefw

#endif  // SPARSEFW_REASON_H_
