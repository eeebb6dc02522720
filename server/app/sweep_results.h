// The results of a job's points as they end: a table of numbers, and the masks
// that are kept.
#ifndef SPARSEFW_SERVER_APP_SWEEP_RESULTS_H_
#define SPARSEFW_SERVER_APP_SWEEP_RESULTS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/app/result_writer.h"
#include "server/jobs/job.h"
#include "sparsefw/sweep.h"

namespace sparsefw::server {

// A job without a sweep is one of a single point.
//
// Memory: of every pattern the best mask, and new weights where it has them.
class SweepResults final : public SweepObserver {
 public:
  using ReportFunction = std::function<void(const ProgressReport&)>;
  SweepResults(std::span<const SweepPoint> points, SweepKeep keep, ResultWriter& writer,
               const ReportFunction& report);

  void OnReport(const ProgressReport& report) override { report_(report); }
  absl::Status OnResult(size_t point, absl::StatusOr<SolveResult> result) override;

  // Once all points have ended: stores what is still to be stored. An error
  // when no point has a result: the first point's.
  absl::StatusOr<JobResult> Finish();
  // So far: of SweepKeep::kAll.
  std::vector<std::string> StoredMasks() const;

 private:
  // Of all points with one pattern.
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

#endif  // SPARSEFW_SERVER_APP_SWEEP_RESULTS_H_
