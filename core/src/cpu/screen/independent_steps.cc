#include "core/src/cpu/screen/independent_steps.h"

#include <memory>
#include <utility>

#include "core/src/frank_wolfe/recurrence.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

std::vector<StepSums> Total(const std::vector<std::vector<StepSums>>& sums_of_block,
                            int64_t steps) {
  std::vector<StepSums> total(static_cast<size_t>(steps));
  for (const std::vector<StepSums>& sums : sums_of_block) {
    for (size_t i = 0; i < sums.size(); ++i) total[i].Add(sums[i]);
  }
  return total;
}

}  // namespace

template <typename Real>
struct IndependentSteps<Real>::Scratch {
  explicit Scratch(int64_t words) : scores(1, words * 64), row(words) {}

  GramRows<Real> gram;
  ToggleScratch<Real> toggles;
  Matrix<Real> scores;
  RowScratch<Real> row;
  ChosenColumns columns;
};

template <typename Real>
IndependentSteps<Real>::IndependentSteps(ScreenedEpoch<Real>& epoch, RowSelector<Real>& selector,
                                         const ParallelContext& context)
    : epoch_(epoch),
      selector_(selector),
      context_(context),
      pool_([words = epoch.iterate().layer->words] { return std::make_unique<Scratch>(words); }) {}

template <typename Real>
IndependentSteps<Real>::~IndependentSteps() = default;

template <typename Real>
template <typename Body>
absl::Status IndependentSteps<Real>::ForEachRow(int64_t steps, Sums& sums, const Body& body) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  sums.resize(static_cast<size_t>(blocks.count()));
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    const typename ScratchPool<Scratch>::Lease lease(pool_);
    std::vector<StepSums> own(static_cast<size_t>(steps));
    for (int64_t row = blocks.begin(block); row < blocks.end(block) && !context_.stopped(); ++row) {
      body(row, own, lease.get());
    }
    sums[static_cast<size_t>(block)] = std::move(own);
  });
}

// V_t enters U.
template <typename Real>
void IndependentSteps<Real>::Apply(int64_t row, GramRows<Real>& gram, StepSums& sums,
                                   Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  active.Apply(epoch_.layer(), gram, scratch.toggles);
  sums.vertex_loss_change += active.vertex_loss_change();
  sums.toggled += active.toggled();
}

// E_t -> E_{t+1}, and V_{t+1} is chosen.
template <typename Real>
void IndependentSteps<Real>::Advance(int64_t row, double step, GramRows<Real>& gram, StepSums& sums,
                                     Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  active.Advance(epoch_.layer(), step);
  const bool in_window = Select(row, step, scratch);
  if (!active.WithinRadius() || !in_window) {
    epoch_.RestartRow(row, scratch.columns, [&] { selector_.Select(row, Real{0}, scratch.row); });
    active.BeginGram(gram);
  }
  active.Commit();
  sums.vertex_inner += active.movement().vertex_inner;
}

// Whether the threshold is in the window of the active columns.
template <typename Real>
bool IndependentSteps<Real>::Select(int64_t row, double step, Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  if (active.lanes() == 0) return true;
  const RowOperands<Real> operands = active.Operands();
  Real* const scores = scratch.scores.data();
  if (!epoch_.budget_by_row()) {
    UpdateAndSelectGroups(operands, static_cast<Real>(step), epoch_.iterate().groups,
                          active.lanes(), scores, active.vertex());
    return true;
  }
  Kernels<Real>().update_and_score(operands, static_cast<Real>(step), scores);
  RowPlan<Real>& plan = epoch_.plan(row);
  return plan.Follow(KernelsOfScreening<Real>().select_largest(
      scores, active.groups(), active.capacity, plan.last, active.vertex()));
}

template <typename Real>
absl::StatusOr<ScreenedOutcome> IndependentSteps<Real>::Take(int64_t first, int64_t limit) {
  grams_.clear();
  Sums sums;
  SPARSEFW_RETURN_IF_ERROR(
      ForEachRow(limit, sums, [&](int64_t row, std::vector<StepSums>& own, Scratch& scratch) {
        epoch_.row(row).BeginGram(scratch.gram, kGatheredBytes);
        for (int64_t i = 0; i < limit; ++i) {
          StepSums& step = own[static_cast<size_t>(i)];
          Apply(row, scratch.gram, step, scratch);
          Advance(row, OpenLoopStep<Real>(first + i), scratch.gram, step, scratch);
        }
      }));
  return ScreenedOutcome{.sums = Total(sums, limit)};
}

template <typename Real>
absl::StatusOr<ScreenedOutcome> IndependentSteps<Real>::TakeOne(
    int64_t /*iteration*/, absl::FunctionRef<double(double)> step_of) {
  const bool begins = grams_.empty();
  grams_.resize(static_cast<size_t>(epoch_.iterate().layer->rows));
  const auto gram = [&](int64_t row) -> GramRows<Real>& {
    return grams_[static_cast<size_t>(row)];
  };
  Sums sums;
  SPARSEFW_RETURN_IF_ERROR(
      ForEachRow(1, sums, [&](int64_t row, std::vector<StepSums>& own, Scratch& scratch) {
        if (begins) epoch_.row(row).BeginGram(gram(row));
        Apply(row, gram(row), own[0], scratch);
      }));
  ScreenedOutcome outcome{.sums = Total(sums, 1)};
  const double step = step_of(outcome.sums[0].vertex_loss_change);
  outcome.stepped = step >= 0;
  if (!outcome.stepped) return outcome;
  SPARSEFW_RETURN_IF_ERROR(
      ForEachRow(1, sums, [&](int64_t row, std::vector<StepSums>& own, Scratch& scratch) {
        Advance(row, step, gram(row), own[0], scratch);
      }));
  outcome.sums[0].vertex_inner = Total(sums, 1)[0].vertex_inner;
  return outcome;
}

template class IndependentSteps<float>;
template class IndependentSteps<double>;

}  // namespace sparsefw::cpu
