// A job that has ended, for the status page.
#ifndef SPARSEFW_SERVER_STATUS_ENDED_JOB_H_
#define SPARSEFW_SERVER_STATUS_ENDED_JOB_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/jobs/job.h"

namespace sparsefw::server {

// No error message: it may name what a tenant has.
struct JobEnd {
  JobState state = JobState::kSucceeded;
  std::string reason;  // how the solve stopped, or why the job failed: EndReasonLabel
  absl::Time time;
  std::optional<absl::Duration> ran;  // empty: the job never ran
  // A share of the loss of pruning everything, with new weights where there are any, without a
  // shrinkage.
  std::optional<double> loss;
  // The lower bound as a share of the mask's loss; empty where the bound is 0.
  std::optional<double> certificate;
};

JobEnd EndOf(const Job& job);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_STATUS_ENDED_JOB_H_
