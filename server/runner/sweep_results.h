// Collects the results of a job's points and stores those that are kept as tensors.
#ifndef SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_
#define SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/sweep.h"

namespace sparsefw::server {

// The room that the results of a job need at most: the masks that a sweep keeps, and the pruned
// weight where it is asked for.
RoomNeed ResultRoom(const JobSpec& spec, const MatrixSpec& weight);

// Host memory that SweepResults holds beside the point that runs, for a weight of [rows, cols].
int64_t KeptBytes(const JobSpec& spec, int64_t rows, int64_t cols);

// Used for one job, which may have a single point. Its arguments must outlive it.
//
// Memory: KeptBytes. It is the best mask of every pattern unless it is stored already, and, for the
// pruned weight, the mask and new weights of the point that may be the result.
class SweepResults final : public SweepObserver {
 public:
  using ReportFunction = std::function<void(const ProgressReport&)>;
  SweepResults(TensorStore* store, const Job& job, const TensorHandle& weight, TensorRoom* room,
               std::span<const SweepPoint> points, const ReportFunction& report);

  void OnReport(const ProgressReport& report) override { report_(report); }
  absl::Status OnResult(size_t point, absl::StatusOr<SolveResult> result) override;

  // To be called once all points have ended: stores the remaining results.
  // Errors: where no point has a result, the first Cancelled, else the first DeadlineExceeded, else
  // the first one.
  absl::StatusOr<JobResult> Finish();
  // Masks stored so far; none before Finish unless SweepKeep::kAll.
  std::vector<std::string> StoredMasks() const;

 private:
  // The best point of one pattern.
  struct Best {
    size_t point = 0;
    double loss = 0;
    Mask mask;
    Matrix<float> weights;  // empty where there are none
  };

  Best* BestOf(const Pattern& pattern);
  // The result of the job: the best point with the first pattern, or where that has none, with the
  // pattern that was the first to have a result. There is one.
  Best& Returned();
  void Keep(Best next);
  // These return the tensor's name.
  absl::StatusOr<std::string> Put(const TensorSpec& spec, std::span<const std::byte> bytes);
  absl::StatusOr<std::string> PutMask(const Mask& mask);
  absl::StatusOr<std::string> PutWeights(const Best& best);

  TensorStore* const store_;
  const Job& job_;
  const TensorHandle& weight_;
  TensorRoom* const room_;
  const std::span<const SweepPoint> points_;
  const ReportFunction& report_;
  std::vector<SweepOutcome> outcomes_;  // by point
  std::vector<Best> best_;              // by pattern, in order of their first result
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_SWEEP_RESULTS_H_
