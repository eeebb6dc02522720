// Screened iterations of rows that share no budget.
//
// In open-loop steps nothing ties a row to the others, so that it takes all of them before the next
// row is begun. Its active columns then stay in the first cache, and the rows of G that they ask
// for in the second, while passes over the whole matrix would read all of it from memory in every
// iteration.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "core/src/parallel/parallel_context.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

// Rows of G gathered for one row of the layer, by every thread; a few active columns
// need a tenth of it.
inline constexpr int64_t kGatheredBytes = int64_t{8} << 20;

template <typename Real>
class IndependentSteps final : public ScreenedSteps<Real> {
 public:
  // `selector`: for rows that begin anew. All must outlive it.
  IndependentSteps(ScreenedEpoch<Real>& epoch, RowSelector<Real>& selector,
                   const ParallelContext& context)
      : ScreenedSteps<Real>(epoch, context), selector_(selector) {}

  absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) override {
    this->ForgetGrams();  // rows may begin anew on other columns
    SumsOfBlocks sums(this->block_count(), std::vector<StepSums>(static_cast<size_t>(limit)));
    SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
      epoch_.row(row).BeginGram(scratch.gram, kGatheredBytes);
      for (int64_t i = 0; i < limit; ++i) {
        StepSums& step = sums[block][static_cast<size_t>(i)];
        Apply(row, scratch.gram, step, scratch);
        Advance(row, OpenLoopStep<Real>(first + i), scratch.gram, kGatheredBytes, step, scratch);
      }
    }));
    return ScreenedOutcome{.sums = Total(sums)};
  }

  absl::StatusOr<ScreenedOutcome> TakeOne(int64_t /*iteration*/,
                                          absl::FunctionRef<double(double)> step_of) override {
    this->BeginGrams();
    SumsOfBlocks sums(this->block_count(), std::vector<StepSums>(1));
    SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
      Apply(row, this->gram(row), sums[block][0], scratch);
    }));
    const double step = step_of(Total(sums)[0].vertex_loss_change);
    if (step >= 0) {
      SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
        Advance(row, step, this->gram(row), 0, sums[block][0], scratch);
      }));
    }
    return ScreenedOutcome{.sums = Total(sums), .stepped = step >= 0};
  }

 private:
  using SumsOfBlocks = std::vector<std::vector<StepSums>>;  // of each block and iteration
  using typename ScreenedSteps<Real>::Scratch;
  using ScreenedSteps<Real>::epoch_;

  // V_t enters U.
  void Apply(int64_t row, GramRows<Real>& gram, StepSums& sums, Scratch& scratch) {
    ActiveRow<Real>& active = epoch_.row(row);
    active.Apply(epoch_.layer(), gram, scratch.toggles);
    sums.vertex_loss_change += active.vertex_loss_change();
    sums.toggled += active.toggled();
  }

  // E_t -> E_{t+1}, and V_{t+1} is chosen. limit: that of BeginGram.
  void Advance(int64_t row, double step, GramRows<Real>& gram, int64_t limit, StepSums& sums,
               Scratch& scratch) {
    ActiveRow<Real>& active = epoch_.row(row);
    active.Advance(epoch_.layer(), step);
    const bool in_window = Select(row, step, scratch);
    if (!active.WithinRadius() || !in_window) {
      epoch_.RestartRow(row, scratch.columns, [&] { selector_.Select(row, Real{0}, scratch.row); });
      active.BeginGram(gram, limit);
    }
    active.Commit();
    sums.vertex_inner += active.movement().vertex_inner;
  }

  // Whether the threshold is in the window of the active columns.
  bool Select(int64_t row, double step, Scratch& scratch) {
    ActiveRow<Real>& active = epoch_.row(row);
    if (active.lanes() == 0) return true;
    const RowOperands<Real> operands = active.Operands();
    Real* const scores = scratch.row.row_scores.data();
    if (!epoch_.budget_by_row()) {
      UpdateAndSelectGroups(operands, static_cast<Real>(step), epoch_.iterate().groups,
                            active.lanes(), scores, active.vertex());
      return true;
    }
    Kernels<Real>().update_and_score(operands, static_cast<Real>(step), scores);
    RowPlan<Real>& plan = epoch_.plan(row);
    return plan.Follow(Kernels<Real>().select_largest(scores, active.groups(), active.capacity,
                                                      plan.last, active.vertex()));
  }

  static std::vector<StepSums> Total(const SumsOfBlocks& sums) {
    std::vector<StepSums> total(sums.empty() ? 0 : sums.front().size());
    for (const std::vector<StepSums>& of_block : sums) {
      for (size_t i = 0; i < of_block.size(); ++i) total[i].Add(of_block[i]);
    }
    return total;
  }

  RowSelector<Real>& selector_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_
