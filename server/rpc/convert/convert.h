// Between the messages of sparsefw.v1 and the server's own types.
//
// From the wire: an unset field takes its documented default; an enum number
// that this version does not know is InvalidArgument (ENUM_UNKNOWN); numbers are
// checked where the conversion would change them. Store and manager check the
// values themselves.
#ifndef SPARSEFW_SERVER_RPC_CONVERT_CONVERT_H_
#define SPARSEFW_SERVER_RPC_CONVERT_CONVERT_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/jobs/event_queue.h"
#include "server/jobs/job.h"
#include "server/jobs/job_store.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/reason.h"
#include "sparsefw/v1/job.pb.h"
#include "sparsefw/v1/prune_service.pb.h"
#include "sparsefw/v1/tensor.pb.h"
#include "sparsefw/v1/tensor_service.pb.h"

namespace sparsefw::server {

// What clients should send in one message, and get in one.
inline constexpr int kSuggestedChunkBytes = 1 << 20;

// The wire numbers the values of our enums in their order, after UNSPECIFIED.
template <typename Wire, typename Own>
constexpr Wire OnWire(Own value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}

// Tensors. kind and dtype have no default: SPEC_INVALID when not set. A client may not send a
// PRUNED_WEIGHT.
absl::StatusOr<TensorKind> FromProto(v1::TensorKind kind, std::string_view field);
absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto);
absl::StatusOr<GramSpec> FromProto(const v1::GramSpec& proto);
v1::TensorSpec ToProto(const TensorSpec& spec);
v1::GramSpec ToProto(const GramSpec& spec);
v1::Tensor ToProto(const TensorInfo& info);
v1::Upload ToProto(const UploadInfo& info);

// Jobs.
absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& proto);
absl::StatusOr<JobFilter> FilterFromProto(const v1::ListJobsRequest& proto);
absl::StatusOr<TensorFilter> FilterFromProto(const v1::ListTensorsRequest& proto);
v1::JobSpec ToProto(const JobSpec& spec);
v1::Job ToProto(const Job& job);
// The job of progress and heartbeats has no spec, owner and shape: they do not change.
v1::JobEvent ToProto(const JobEvent& event);
// That nothing has changed since `event`, of a job that has not ended.
v1::JobEvent HeartbeatAfter(const JobEvent& event);
v1::SweepPoint ToProto(const SweepPoint& point);

// Common.
absl::StatusOr<absl::Duration> FromProto(const google::protobuf::Duration& proto,
                                         std::string_view field);
google::protobuf::Duration ToProto(absl::Duration duration);
google::protobuf::Timestamp ToProto(absl::Time time);

// 0 means 100; more than 1000 is 1000. Errors: InvalidArgument when negative.
absl::StatusOr<int> PageSize(int32_t requested);
// Texts that a caller chooses and the server keeps. Errors: InvalidArgument (`reason`)
absl::Status CheckLength(Reason reason, std::string_view field, std::string_view text,
                         size_t max_bytes);
// For text that logs and errors repeat. Errors: InvalidArgument (`reason`)
absl::Status CheckNoControls(Reason reason, std::string_view field, std::string_view text);
// The labels of a job, or of a filter of jobs: at most 64 (LABELS_INVALID).
absl::Status CheckLabelCount(int count);
// At most 128 bytes without control characters; empty: none (REQUEST_ID_INVALID).
absl::Status CheckRequestId(std::string_view request_id);
// At most 256 bytes (OWNER_INVALID).
absl::Status CheckOwner(std::string_view owner);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_CONVERT_CONVERT_H_
