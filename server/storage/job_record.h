// Jobs to and from the bytes that the database keeps: sparsefw.storage.v1.JobRecord.
#ifndef SPARSEFW_SERVER_STORAGE_JOB_RECORD_H_
#define SPARSEFW_SERVER_STORAGE_JOB_RECORD_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// Every field, exactly.
std::string EncodeJob(const Job& job);
// Errors: Internal (STORE_FAILED)  the bytes are not what EncodeJob makes
absl::StatusOr<Job> DecodeJob(std::string_view bytes);

std::string EncodeProgress(const JobProgress& progress);
// Sets the progress and the revision of the job. Errors: as DecodeJob.
absl::Status DecodeProgress(std::string_view bytes, Job* job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_JOB_RECORD_H_
