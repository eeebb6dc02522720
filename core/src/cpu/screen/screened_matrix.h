// Screened iterations of all rows together: where one budget serves the matrix,
// the step follows from all rows (line search), or the gap is looked at after every
// step. What rows gathered of G stays for the epoch.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_MATRIX_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_MATRIX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/found_score.h"
#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/row_select.h"
#include "core/src/cpu/screen/screened_epoch.h"
#include "core/src/cpu/screen/step_sums.h"
#include "core/src/cpu/select/row_selector.h"
#include "core/src/parallel/parallel_context.h"

namespace sparsefw::cpu {

template <typename Real>
class ScreenedMatrix {
 public:
  // `rows`: null where one budget serves the matrix. All must outlive it.
  ScreenedMatrix(ScreenedEpoch<Real>& epoch, RowSelector<Real>* rows,
                 const ParallelContext& context);

  struct Outcome {
    bool stepped = true;   // false: U is that of V_t, E still that of M_t
    bool selected = true;  // false: the epoch must end, V_{t+1} be selected anew
    StepSums sums;         // where selected: all of them
  };
  // One iteration inside the epoch. `step`: where it is known beforehand; otherwise
  // step_of(change of b) says it, below 0 that it cannot be taken here.
  absl::StatusOr<Outcome> Step(std::optional<double> step,
                               absl::FunctionRef<double(double)> step_of);

  // The epoch has ended, or does not run here.
  void Forget() { grams_.clear(); }

 private:
  using Found = FoundScore<Real>;
  struct BlockScan {
    int64_t above = 0;
    StepSums sums;
    std::vector<Found> found;
  };

  void Prepare();
  void ApplyBlock(int64_t block);
  void AdvanceBlock(int64_t block, double step);
  void ScanRow(int64_t row, double step, BlockScan& scan, SelectScratch<Real>& scratch);
  void SelectInRow(int64_t row, double step, SelectScratch<Real>& scratch);
  void ForgetRow(int64_t row);
  absl::StatusOr<bool> FindThreshold();
  absl::Status CollectPositive();
  absl::Status CommitBlocks();
  StepSums Total() const;

  ScreenedEpoch<Real>& epoch_;
  RowSelector<Real>* const rows_;
  const ParallelContext& context_;
  std::vector<GramRows<Real>> grams_;  // of each row; empty: none yet
  std::vector<BlockScan> scans_;
  std::vector<Found> merged_;
  Found last_ = {};         // the last one selected
  bool any_found_ = false;  // of those found, those up to `last_` are selected
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_MATRIX_H_
