// The points of a job specification.
#ifndef SPARSEFW_SERVER_JOBS_JOB_SPEC_H_
#define SPARSEFW_SERVER_JOBS_JOB_SPEC_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// The points of the sweep; without a sweep, one point with the job's own options.
std::vector<SweepPoint> PointsOf(const JobSpec& spec);

// `status` with "sweep.points[index]: " before the message.
absl::Status AtPoint(size_t index, const absl::Status& status);

// The first error of `check` over the points; for a sweep it names the point.
absl::Status CheckPoints(const JobSpec& spec,
                         const std::function<absl::Status(const SweepPoint&)>& check);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_SPEC_H_
