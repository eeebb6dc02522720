// An epoch of screened iterations: every row on its active columns, from one
// pair of full products E, U to the next (docs/numerics.md, Screening).
//
// While it runs, E and U of the inactive columns stand where it began; M and the vertices
// are brought up to date by StoreMasks. Which columns are active and when a row or the epoch
// ends depends on the iterates alone.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_EPOCH_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_EPOCH_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/screen/active_row.h"
#include "core/src/cpu/screen/column_choice.h"
#include "core/src/cpu/screen/row_plan.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/backend.h"
#include "sparsefw/iteration_state.h"

namespace sparsefw::cpu {

template <typename Real>
class ScreenedEpoch {
 public:
  // All of them must outlive it.
  ScreenedEpoch(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed, Screening screening,
                const ParallelContext& context);

  bool running() const { return running_; }
  int64_t end() const { return end_; }  // the iteration at which it ends, at the latest

  // Whether an epoch may begin at the iteration; E_t, U_{t-1}, V_t are known.
  bool MayBegin(int64_t iteration) const;
  // Chooses columns; running() says whether that pays. `together`: all rows take a step
  // before the next one, and what they gather of G stays. `refreshes`: the epoch must end where
  // E is computed anew. If the epoch begins, Iterate.older is given back and `release` called
  // before the rows take memory.
  absl::Status Begin(const Recurrence& at, bool together, bool refreshes,
                     absl::FunctionRef<void()> release);
  // E, U, M and the vertices are complete again; `at` where it ends.
  absl::Status End(int64_t iteration);
  // M and the vertices alone.
  absl::Status StoreMasks();

  // A row that moved beyond its radius, or its threshold out of its window, begins anew on other
  // columns. `select` chooses its vertex at the complete E. Distinct rows concurrently.
  void RestartRow(int64_t row, ChosenColumns& scratch, absl::FunctionRef<void()> select);

  ActiveRow<Real>& row(int64_t row) { return rows_[static_cast<size_t>(row)]; }
  RowPlan<Real>& plan(int64_t row) { return plans_[static_cast<size_t>(row)]; }
  // Where one budget serves the matrix, its threshold's window.
  RowPlan<Real>& shared_plan() { return shared_; }
  const ScreenedLayer<Real>& layer() const { return layer_; }
  Iterate<Real>& iterate() { return iterate_; }
  bool budget_by_row() const {
    return !iterate_.groups.whole_matrix && iterate_.groups.groups_per_row == 1;
  }
  ScreeningCounts CountsAt(int64_t iteration) const;

  // screened_epoch_state.cc: all that the coming iterations depend on.
  absl::Status Save(StateWriter& writer);
  absl::Status Restore(StateReader& reader);

 private:
  struct Scalars;
  void PlanRow(int64_t row, double step);
  void PlanThreshold();
  void LeaveRow(int64_t row);
  void BeginRow(int64_t row, ChosenColumns& scratch);
  absl::Status RestoreRow(int64_t row, StateReader& reader);
  bool Pays(const std::vector<int64_t>& lanes, bool together) const;
  void ChooseRow(int64_t row, ChosenColumns& out);
  double ShareNow() const;
  void Adapt(int64_t iteration);
  absl::Status LeaveBlocks(int64_t first, int64_t end);

  Iterate<Real>& iterate_;
  RelaxedMask<Real>& relaxed_;
  const bool always_;
  const ParallelContext& context_;
  ColumnChoice<Real> choice_;
  ScreenedLayer<Real> layer_;
  std::vector<ActiveRow<Real>> rows_;
  std::vector<RowPlan<Real>> plans_;
  RowPlan<Real> shared_;
  bool running_ = false;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t length_;
  int64_t next_try_;
  int64_t active_ = 0;  // lanes of all rows
  // Counts of the epochs that have ended and, but for its iterations, of the one that runs; the
  // share is summed over the iterations.
  ScreeningCounts counts_;
  std::vector<SparseRows<Real>> product_terms_;  // of each block of the group at work
  std::vector<SparseRows<Real>> vertex_terms_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_EPOCH_H_
