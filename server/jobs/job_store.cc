#include "server/jobs/job_store.h"

#include "absl/strings/str_format.h"

namespace sparsefw::server {

absl::Status JobNotFound(std::string_view name) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "there is no job \"%s\"", name);
}

absl::Status CheckJobRoom(const JobRoom& room, const std::string& tenant, int64_t bytes,
                          const JobRoomUsed& used) {
  if (room.tenant_bytes.has_value() && bytes > *room.tenant_bytes - used.tenant_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrFormat(
            "kept jobs of tenant %s must count for at most max-job-bytes of %d bytes; they count "
            "for %d and this one for %d: delete jobs that have ended, or wait until they expire",
            tenant, *room.tenant_bytes, used.tenant_bytes, bytes)),
        "QUOTA_JOB_BYTES",
        {{"quota", "max-job-bytes"},
         {"limit", absl::StrFormat("%d", *room.tenant_bytes)},
         {"current", absl::StrFormat("%d", used.tenant_bytes)}});
  }
  if (bytes > room.all_bytes - used.all_bytes) {
    return Refuse(
        absl::StatusCode::kResourceExhausted, "JOBS_FULL",
        "kept jobs must count for at most %d bytes; they count for %d and this one for %d: "
        "delete jobs that have ended, or wait until they expire",
        room.all_bytes, used.all_bytes, bytes);
  }
  if (bytes > room.disk_bytes - used.disk_bytes) {
    return RefuseForNow(
        absl::StatusCode::kResourceExhausted, "DISK_BUDGET",
        "the job and its end need %d bytes of the disk budget; the database and what is "
        "promised to jobs take %d, and beside the tensors there is room for %d",
        bytes, used.disk_bytes, room.disk_bytes);
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::server
