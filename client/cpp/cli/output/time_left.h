// How long a job's iterations still take, from its reports.
#ifndef SPARSEFW_CLIENT_CLI_TIME_LEFT_H_
#define SPARSEFW_CLIENT_CLI_TIME_LEFT_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/time/time.h"
#include "sparsefw/v1/job.pb.h"

namespace sparsefw::cli {

// The share of its iterations that a job has done, those of all points of a
// sweep together; unset where its progress counts none.
std::optional<double> ShareDone(const v1::Job& job);

// The median time of an iteration in the last reports times the iterations
// left, so that one slow report does not move it. Points of a sweep that are
// still to come are taken to cost what the present one does. Not more than the
// time to the deadline.
class TimeLeft {
 public:
  // `job` has a new report.
  void Add(const v1::Job& job);
  std::optional<absl::Duration> estimate() const { return estimate_; }

 private:
  struct Report {
    int64_t iteration;
    absl::Duration elapsed;
  };
  std::deque<Report> reports_;  // of one point
  int32_t point_ = 0;
  std::optional<absl::Duration> estimate_;
};

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_TIME_LEFT_H_
