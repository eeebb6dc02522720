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

// The records number the values as the enums do, which the definition asserts. A
// number that an enum lacks comes from a newer server, whose schema this one refuses.
template <typename To, typename From>
constexpr To SameNumber(From value) {
  return static_cast<To>(static_cast<int>(value));
}

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STORAGE_RECORD_VALUES_H_
