#include "core/src/cpu/iteration/row_wise.h"

#include <iterator>

#include "core/src/cpu/iteration/free_columns.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

template <typename Real>
void RowWiseSteps<Real>::TakeOnAllColumns(int64_t block, int64_t first,
                                          std::vector<StepSums>& sums) {
  RowScratch<Real> scratch(iterate.layer->words);
  SparseRows<Real> delta;
  for (int64_t row = iterate.blocks.begin(block); row < iterate.blocks.end(block); ++row) {
    if (context.stopped()) return;
    for (size_t i = 0; i < sums.size(); ++i) {
      const double step = OpenLoopStep<Real>(first + static_cast<int64_t>(i));
      sums[i].toggled += update.Toggling(row);
      sums[i].vertex_loss_change += update.ApplyToRow(row, delta);
      relaxed.Advance(step, row, iterate.previous.row(row));
      sums[i].vertex_inner += selector.Select(row, iterate.Row(row), static_cast<Real>(step),
                                              scratch, iterate.vertex.row(row));
    }
  }
}

template <typename Real>
void RowWiseSteps<Real>::TakeOnFreeColumns(int64_t block, int64_t first,
                                           std::vector<StepSums>& sums) {
  RowScratch<Real> scratch(iterate.layer->words);
  FreeColumns<Real> columns(iterate, relaxed);
  for (int64_t row = iterate.blocks.begin(block); row < iterate.blocks.end(block); ++row) {
    if (context.stopped()) return;
    columns.Load(row);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double step = OpenLoopStep<Real>(first + static_cast<int64_t>(i));
      sums[i].vertex_loss_change += columns.ApplyVertex();
      sums[i].toggled += columns.toggled();
      sums[i].vertex_inner += columns.Advance(step, selector, scratch);
    }
    columns.Store();
  }
}

template <typename Real>
absl::StatusOr<std::vector<StepSums>> RowWiseSteps<Real>::Take(int64_t first, int64_t count) {
  const RowBlocks& blocks = iterate.blocks;
  const auto steps = static_cast<size_t>(count);
  iterate.KnowOlder();
  std::vector<std::vector<StepSums>> sums_of_block(static_cast<size_t>(blocks.count()));
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    std::vector<StepSums> sums(steps);
    if (selector.MayLeaveOutFixed()) {
      TakeOnFreeColumns(block, first, sums);
    } else {
      TakeOnAllColumns(block, first, sums);
    }
    sums_of_block[static_cast<size_t>(block)] = std::move(sums);
  }));
  std::vector<StepSums> total(steps);
  for (const std::vector<StepSums>& sums : sums_of_block) {
    for (size_t i = 0; i < steps; ++i) {
      total[i].vertex_loss_change += sums[i].vertex_loss_change;
      total[i].vertex_inner += sums[i].vertex_inner;
      total[i].toggled += sums[i].toggled;
    }
  }
  return total;
}

template struct RowWiseSteps<float>;
template struct RowWiseSteps<double>;

}  // namespace sparsefw::cpu
