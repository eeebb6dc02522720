#include "core/src/cpu/screen/screened_rows.h"

#include <memory>
#include <utility>

#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/row_select.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "core/src/parallel/scratch_pool.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

}  // namespace

template <typename Real>
struct ScreenedRows<Real>::Scratch {
  explicit Scratch(int64_t words) : select(words), row(words) {}

  GramRows<Real> gram;
  ToggleScratch<Real> toggles;
  SelectScratch<Real> select;
  RowScratch<Real> row;
  ChosenColumns columns;
};

template <typename Real>
bool StepAndSelect(ScreenedEpoch<Real>& epoch, int64_t row, double step,
                   SelectScratch<Real>& scratch) {
  ActiveRow<Real>& active = epoch.row(row);
  bool in_window = true;
  if (active.lanes() == 0) {
    active.AdvanceScalars(epoch.layer(), step);
  } else if (epoch.budget_by_row()) {
    RowPlan<Real>& plan = epoch.plan(row);
    in_window = plan.Follow(AdvanceAndSelect(epoch.layer(), step, active, plan.last, scratch));
  } else {
    AdvanceAndSelectGroups(epoch.layer(), epoch.iterate().groups, step, active, scratch);
  }
  return active.WithinRadius() && in_window;
}

template <typename Real>
void ScreenedRows<Real>::Restart(int64_t row, Scratch& scratch) {
  const bool radius = !epoch.row(row).WithinRadius();
  epoch.LeaveRow(row);
  epoch.Widen(row, radius);
  Iterate<Real>& it = epoch.iterate();
  selector.Select(row, it.Row(row), Real{0}, scratch.row, it.vertex.row(row));
  epoch.BeginRow(row, scratch.columns);
  const ActiveRow<Real>& active = epoch.row(row);
  scratch.gram.Reset(active.lanes(), active.groups() * kLaneGroup,
                     kChunkBytes / static_cast<int64_t>(sizeof(Real)));
}

template <typename Real>
void ScreenedRows<Real>::TakeRow(int64_t row, int64_t first, Scratch& scratch,
                                 std::vector<StepSums>& sums) {
  ActiveRow<Real>& active = epoch.row(row);
  constexpr auto kSize = static_cast<int64_t>(sizeof(Real));
  scratch.gram.Reset(active.lanes(), active.groups() * kLaneGroup, kChunkBytes / kSize);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double step = OpenLoopStep<Real>(first + static_cast<int64_t>(i));
    active.Apply(epoch.layer(), scratch.gram, kScratchBytes / kSize, scratch.toggles);
    sums[i].vertex_loss_change += active.vertex_loss_change();
    sums[i].toggled += active.toggled();
    if (!StepAndSelect(epoch, row, step, scratch.select)) Restart(row, scratch);
    active.Commit();
    sums[i].vertex_inner += active.movement.vertex_inner;
  }
}

template <typename Real>
absl::StatusOr<std::vector<StepSums>> ScreenedRows<Real>::Take(int64_t first, int64_t count) {
  const RowBlocks& blocks = epoch.iterate().blocks;
  const auto steps = static_cast<size_t>(count);
  std::vector<std::vector<StepSums>> sums_of_block(static_cast<size_t>(blocks.count()));
  Pool pool([words = epoch.iterate().layer->words] { return std::make_unique<Scratch>(words); });
  SPARSEFW_RETURN_IF_ERROR(context.ForEach(blocks.count(), [&](int64_t block) {
    std::vector<StepSums> sums(steps);
    const typename Pool::Lease lease(pool);
    Scratch& scratch = lease.get();
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      if (context.stopped()) return;
      TakeRow(row, first, scratch, sums);
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

template bool StepAndSelect(ScreenedEpoch<float>&, int64_t, double, SelectScratch<float>&);
template bool StepAndSelect(ScreenedEpoch<double>&, int64_t, double, SelectScratch<double>&);
template struct ScreenedRows<float>;
template struct ScreenedRows<double>;

}  // namespace sparsefw::cpu
