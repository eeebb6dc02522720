// The parts of a JobRecord that are not messages of ours alone: times, statuses, enums.
#ifndef SPARSEFW_SERVER_STORAGE_RECORD_VALUES_H_
#define SPARSEFW_SERVER_STORAGE_RECORD_VALUES_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"
#include "sparsefw/storage/v1/job_record.pb.h"

namespace sparsefw::server {

namespace records = ::sparsefw::storage::v1;

records::Duration ToRecord(absl::Duration duration);
records::Duration ToRecord(absl::Time time);
absl::Duration DurationOf(const records::Duration& record);
absl::Time TimeOf(const records::Duration& record);

records::Status ToRecord(const absl::Status& status);
absl::Status StatusOf(const records::Status& record);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_RECORD_VALUES_H_
