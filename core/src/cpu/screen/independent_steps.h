// Screened iterations of rows that share no budget.
//
// In open-loop steps nothing ties a row to the others, so that it takes all of them before the next
// row is begun. Its active columns then stay in the first cache, and the rows of G that they ask
// for in the second, while passes over the whole matrix would read all of it from memory in every
// iteration.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/parallel/parallel_context.h"

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

  absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) override;
  absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                          absl::FunctionRef<double(double)> step_of) override;

 private:
  using typename ScreenedSteps<Real>::Scratch;
  using ScreenedSteps<Real>::epoch_;

  struct Gathered {
    GramRows<Real>& rows;
    int64_t limit;  // of bytes; 0: none
  };

  void Apply(int64_t row, GramRows<Real>& gram, StepSums& sums, Scratch& scratch);
  void Advance(int64_t row, double step, Gathered gathered, StepSums& sums, Scratch& scratch);
  bool Select(int64_t row, double step, Scratch& scratch);

  RowSelector<Real>& selector_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_INDEPENDENT_STEPS_H_
