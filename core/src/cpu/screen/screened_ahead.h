// Screened open-loop iterations where one budget serves the matrix: several of one row before
// the next row is begun, ahead of the thresholds.
//
// The threshold of an iteration follows from the scores of all rows, but it moves little. So
// every row takes a run of iterations with thresholds that are predicted, in the cache, with the
// rows of G that it asks for. Then, iteration by iteration, the exact threshold is found among the
// scores that lay near the predicted one in any row. The few rows whose vertex it changes are taken
// back to where they were right and go on from there. The vertices are those of iterations one by
// one, whatever was predicted.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_AHEAD_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_AHEAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/found_score.h"
#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/row_select.h"
#include "core/src/cpu/screen/screened_epoch.h"
#include "core/src/cpu/screen/step_sums.h"
#include "core/src/cpu/screen/threshold_forecast.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/parallel/scratch_pool.h"

namespace sparsefw::cpu {

// Memory: of every row what it gathers of G, and the state at which its run began, as much as
//         the row itself.
template <typename Real>
class ScreenedAhead {
 public:
  // Both must outlive it.
  ScreenedAhead(ScreenedEpoch<Real>& epoch, const ParallelContext& context);
  ~ScreenedAhead();

  struct Outcome {
    std::vector<StepSums> sums;  // of the iterations taken, at least one
    bool selected = true;        // false: after the last one the epoch must end, V be selected anew
  };
  // Open-loop iterations from `first` on inside the epoch, `limit` >= 1 at most.
  absl::StatusOr<Outcome> Take(int64_t first, int64_t limit);

  // The epoch has ended, or does not run here.
  void Forget() {
    grams_.clear();
    runs_.clear();
  }

 private:
  // A score in the window of an iteration, and whether its row took it into the vertex.
  struct Near {
    FoundScore<Real> found;
    bool taken = false;
  };
  struct RowStep {
    StepSums sums;
    int64_t over = 0;     // in the vertex without being near: beyond the window, or inactive
    size_t near_end = 0;  // of `near`: those of this iteration end here
  };
  // One row's run. Its iterations from `saved_at` on can be taken back; those after the choice of
  // iteration `doubtful_at` from there. That is the first one with a score so near to the
  // predicted threshold that it is likely to be chosen wrongly; below 0: none.
  struct RowRun {
    typename ActiveRow<Real>::Saved saved;
    int64_t saved_at = 0;
    typename ActiveRow<Real>::Saved doubtful;
    int64_t doubtful_at = -1;
    int64_t done = 0;        // iterations whose vertex was chosen
    bool stalled = false;    // iteration `done` took it beyond its radius
    bool restarted = false;  // there, on other columns; the vertex is not chosen yet
    std::vector<RowStep> steps;
    std::vector<Near> near;  // of all iterations, one after the other
  };
  // What an iteration of the run found in a block of rows.
  struct BlockScan {
    int64_t over = 0;
    std::vector<FoundScore<Real>> found;
    int64_t repeated = 0;  // iterations of rows taken again
    StepSums sums;
    void Begin() {
      over = 0;
      found.clear();
    }
  };
  struct Scratch;
  using Pool = ScratchPool<Scratch>;

  // The vertex of an iteration, as far as it is known.
  struct Cut {
    Real low = 0;  // scores beyond the window are over it or not near it
    Real high = 0;
    Real predicted = 0;
    Real doubt = 0;  // scores so near to it are likely to be taken wrongly
    bool exact = false;
    bool any = false;  // of the scores near, those up to `last` are taken
    FoundScore<Real> last = {};
    bool Takes(const FoundScore<Real>& found) const {
      return exact ? any && !Better(last, found) : found.score > predicted;
    }
  };

  // One row, in one iteration of the run.
  void Advance(int64_t row, int64_t step, Scratch& scratch);
  void Collect(int64_t row, int64_t step, Scratch& scratch);
  void CollectPositive(int64_t row, int64_t step);
  void Choose(int64_t row, int64_t step);
  // One row, from one iteration to another.
  void Run(int64_t row, Scratch& scratch, int64_t save_at);
  bool IsDoubtful(const RowRun& run, int64_t step) const;
  void GoBack(int64_t row);
  void Repeat(int64_t row, int64_t step, Scratch& scratch);
  // All rows, or those that an iteration concerns.
  absl::Status RunAll(int64_t first, int64_t count);
  void PredictAfter(int64_t step);
  absl::Status ScanBlocks(int64_t step);
  void ScanRow(int64_t row, int64_t step, BlockScan& scan);
  void FetchRow(int64_t row, int64_t step) const;
  void Restart(int64_t row, int64_t step, Scratch& scratch);
  std::optional<Real> FindCut(int64_t step);
  bool IsWrong(const RowRun& run, int64_t step) const;
  int64_t MendRow(int64_t row, int64_t step);
  absl::Status Mend(int64_t step, bool scan_next);
  absl::Status Settle(int64_t step);
  absl::Status ChooseAll(int64_t step);
  void SumBlock(int64_t block, int64_t step);
  StepSums Total() const;
  size_t NearBegin(const RowRun& run, int64_t step) const {
    return step == 0 ? 0 : run.steps[static_cast<size_t>(step - 1)].near_end;
  }

  ScreenedEpoch<Real>& epoch_;
  const ParallelContext& context_;
  Pool pool_;
  ThresholdForecast<Real> forecast_;
  int64_t first_ = 0;
  int64_t next_ = 0;       // the iteration after the last run
  std::vector<Cut> cuts_;  // of the iterations of this run
  std::vector<RowRun> runs_;
  std::vector<GramRows<Real>> grams_;  // of each row; empty: none yet
  std::vector<BlockScan> scans_;       // of each block, in the iteration at hand
  std::vector<FoundScore<Real>> merged_;
  int64_t repeated_ = 0;  // iterations of rows taken again in this run
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_AHEAD_H_
