// Screened iterations where one budget serves the matrix: all rows take a step before the next one.
//
// The threshold of an iteration follows from the scores of all rows, but it moves little. So it
// is found among the scores in a window around its forecast. Where the window misses it, all
// positive scores are looked at.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/cpu/screen/threshold_forecast.h"
#include "core/src/cpu/select/threshold.h"

namespace sparsefw::cpu {

// Memory: what every row gathers of G, and the scores in the window.
template <typename Real>
class SharedSteps final : public ScreenedSteps<Real> {
 public:
  // Both must outlive it.
  SharedSteps(ScreenedEpoch<Real>& epoch, const ParallelContext& context)
      : ScreenedSteps<Real>(epoch, context), scans_(this->block_count()) {}

  // Takes one of them.
  absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) override;
  absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                          absl::FunctionRef<double(double)> step_of) override;
  void Forget() override;

 private:
  // What a block of rows found in an iteration.
  struct BlockScan {
    WindowScores<Real> scores;  // row by row; of each its lanes
    size_t next = 0;            // the first score inside that is not decided yet
    StepSums sums;
  };
  using typename ScreenedSteps<Real>::Scratch;
  using ScreenedSteps<Real>::epoch_;

  void Begin(int64_t iteration);
  void Apply(int64_t row, size_t block, Scratch& scratch);
  void Move(int64_t row, size_t block, double step, Scratch& scratch);
  void Scan(int64_t row, size_t block, double step, Scratch& scratch);
  absl::Status ScanAnew();
  void Choose(int64_t row, size_t block, const Threshold<Real>& threshold);
  absl::StatusOr<ScreenedOutcome> ChooseVertex();
  StepSums Total() const;

  ThresholdForecast<Real> forecast_;
  typename ThresholdForecast<Real>::Interval window_;
  int64_t next_ = 0;              // the iteration after the last one
  std::vector<BlockScan> scans_;  // of each block
  std::vector<MatrixCandidate<Real>> merged_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_
