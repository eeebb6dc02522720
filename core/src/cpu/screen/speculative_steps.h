// Screened open-loop iterations where one budget serves the matrix: several of one row before
// the next row is begun, ahead of the thresholds.
//
// The threshold of an iteration follows from the scores of all rows, but it moves little. So
// every row takes a run of iterations with thresholds that are predicted, in the cache, with the
// rows of G that it asks for (Speculate). Then, iteration by iteration, the exact threshold is
// found among the scores that lay near the predicted one in any row (Verify). The few rows whose
// vertex it changes go back to a checkpoint and on from there (Rollback). The vertices are those of
// iterations one by one, whatever was predicted. A run of one iteration predicts nothing.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SPECULATIVE_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SPECULATIVE_STEPS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/cpu/screen/threshold_forecast.h"
#include "core/src/cpu/select/threshold.h"

namespace sparsefw::cpu {

// Memory: of every row what it gathers of G, and a checkpoint, as much as the row itself.
template <typename Real>
class SpeculativeSteps final : public ScreenedSteps<Real> {
 public:
  // Both must outlive it.
  SpeculativeSteps(ScreenedEpoch<Real>& epoch, const ParallelContext& context)
      : ScreenedSteps<Real>(epoch, context), scans_(this->block_count()) {}

  absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) override;
  absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                          absl::FunctionRef<double(double)> step_of) override;
  void Forget() override { runs_.clear(); }

 private:
  // A score in the window of an iteration, and whether its row took it into the vertex.
  struct Candidate {
    MatrixCandidate<Real> score;
    bool taken = false;
  };
  struct RowStep {
    StepSums sums;
    int64_t above = 0;          // in the vertex: beyond the window, or inactive
    size_t candidates_end = 0;  // of the row's candidates: those of this iteration end here
  };
  struct RowRun {
    // At E_{t+1} of iteration t = `checkpoint_at` of the run, its vertex not chosen.
    typename ActiveRow<Real>::Saved checkpoint;
    int64_t checkpoint_at = 0;
    int64_t done = 0;      // iterations whose vertex was chosen
    bool stalled = false;  // iteration `done` took it beyond its radius
    std::vector<RowStep> steps;
    std::vector<Candidate> candidates;  // of all iterations, one after the other
    GramRows<Real> gram;
  };
  // The threshold of an iteration, as far as it is known.
  struct StepThreshold {
    Real low = 0;  // the window
    Real high = 0;
    Real predicted = 0;
    std::optional<Threshold<Real>> exact;
    bool Selects(const MatrixCandidate<Real>& score) const {
      return exact ? exact->Selects(score) : score.key > predicted;
    }
  };
  // The scores that an iteration of the run found in a block of rows.
  struct BlockScan {
    WindowScores<Real> scores;
    int64_t repeated = 0;  // iterations of rows taken again
    StepSums sums;
  };
  using typename ScreenedSteps<Real>::Scratch;
  using ScreenedSteps<Real>::epoch_;

  RowRun& run(int64_t row) { return runs_[static_cast<size_t>(row)]; }
  StepThreshold& threshold(int64_t step) { return thresholds_[static_cast<size_t>(step)]; }
  size_t CandidatesBegin(const RowRun& run, int64_t step) const {
    return step == 0 ? 0 : run.steps[static_cast<size_t>(step - 1)].candidates_end;
  }

  // One row; `step` is an iteration of the run.
  void BeginRun(int64_t row, bool begins);
  void Apply(int64_t row, Scratch& scratch);
  void Advance(int64_t row, double step_size, Scratch& scratch);
  void FindCandidates(int64_t row, double step_size, Scratch& scratch);
  void Choose(int64_t row);
  void SaveCheckpoint(int64_t row);
  void Rollback(int64_t row);
  void Speculate(int64_t row, int64_t checkpoint_at, Scratch& scratch);
  void Restart(int64_t row, Scratch& scratch);
  bool IsWrong(const RowRun& run, int64_t step) const;

  // All rows.
  bool BeginRuns(int64_t first, int64_t limit);
  absl::Status CollectScores(int64_t step);
  std::optional<Threshold<Real>> Find(int64_t step);
  absl::Status EndRunAt(int64_t step);
  absl::Status Verify(int64_t step);
  absl::StatusOr<ScreenedOutcome> VerifyAll();
  StepSums Total() const;

  ThresholdForecast<Real> forecast_;
  int64_t first_ = 0;                      // of this run
  int64_t next_ = 0;                       // the iteration after it
  std::vector<StepThreshold> thresholds_;  // of the iterations of this run
  std::vector<RowRun> runs_;               // of each row; empty: the epoch has just begun
  std::vector<BlockScan> scans_;           // of each block, in the iteration at hand
  std::vector<MatrixCandidate<Real>> merged_;
  bool missed_ = false;  // the last threshold was not in its window
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SPECULATIVE_STEPS_H_
