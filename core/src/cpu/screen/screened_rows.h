// Many screened iterations of one row before the next row is begun.
//
// Where rows do not share a budget and the step sizes are known beforehand (open loop), nothing
// ties a row to the others. Its active columns then stay in the first cache, and the rows of G that
// they ask for in the second, while passes over the whole matrix would read all of it from
// memory in every iteration.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_ROWS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/src/cpu/screen/row_select.h"
#include "core/src/cpu/screen/screened_epoch.h"
#include "core/src/cpu/screen/step_sums.h"
#include "core/src/cpu/select/row_selector.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/parallel/scratch_pool.h"

namespace sparsefw::cpu {

// E_t -> E_{t+1} and V_{t+1} of a row that shares no budget. Whether the selection
// among its active columns is that among all.
template <typename Real>
bool StepAndSelect(ScreenedEpoch<Real>& epoch, int64_t row, double step,
                   SelectScratch<Real>& scratch);

template <typename Real>
struct ScreenedRows {
  // Rows of G gathered for one row of the layer, by every thread; a few active columns
  // need a tenth of it.
  static constexpr int64_t kScratchBytes = int64_t{8} << 20;

  ScreenedEpoch<Real>& epoch;
  RowSelector<Real>& selector;  // for rows that left their epoch
  const ParallelContext& context;

  // Open-loop iterations first .. first + count - 1 of every row, inside the epoch.
  // Errors: Cancelled; rows are then at different iterations
  absl::StatusOr<std::vector<StepSums>> Take(int64_t first, int64_t count);

 private:
  struct Scratch;
  using Pool = ScratchPool<Scratch>;
  void TakeRow(int64_t row, int64_t first, Scratch& scratch, std::vector<StepSums>& sums);
  void Restart(int64_t row, Scratch& scratch);
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_ROWS_H_
