// Collects the results of a job's points and stores the masks that are kept.
#ifndef SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_
#define SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/runner/result_writer.h"
#include "sparsefw/sweep.h"

namespace sparsefw::server {

// A job without a sweep has a single point.
//
// Memory: the best mask of every pattern, and its new weights if there are any.
class SweepResults final : public SweepObserver {
 public:
  using ReportFunction = std::function<void(const ProgressReport&)>;
  SweepResults(std::span<const SweepPoint> points, SweepKeep keep, ResultWriter& writer,
               const ReportFunction& report);

  void OnReport(const ProgressReport& report) override { report_(report); }
  absl::Status OnResult(size_t point, absl::StatusOr<SolveResult> result) override;

  // To be called once all points have ended: stores the remaining results.
  // Errors: that of the first point when no point has a result.
  absl::StatusOr<JobResult> Finish();
  // Masks stored so far; none before Finish unless SweepKeep::kAll.
  std::vector<std::string> StoredMasks() const;

 private:
  // The best point of one pattern.
  struct Best {
    size_t point = 0;
    SolveResult solved;
  };

  Best* BestOf(const Pattern& pattern);

  const std::span<const SweepPoint> points_;
  const SweepKeep keep_;
  ResultWriter& writer_;
  const ReportFunction& report_;
  std::vector<SweepOutcome> outcomes_;  // by point
  std::vector<Best> best_;              // by pattern, in order of their first point
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_
