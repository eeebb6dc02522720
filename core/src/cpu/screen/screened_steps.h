// How the rows of an epoch take their iterations.
//
// Rows with a budget of their own (independent_steps.h) take many open-loop steps before the next
// row is begun, since these steps are known beforehand. Line search and the gap stop need every row
// after every step. So does one budget for all rows (shared_steps.h).
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_

#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/screened_epoch.h"
#include "core/src/cpu/select/row_selector.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/parallel/scratch_pool.h"

namespace sparsefw::cpu {

// The sums of an iteration over the rows. Rows and blocks of rows are added in order, so that the
// bits do not depend on the threads.
struct StepSums {
  double vertex_loss_change = 0;  // b_t - b_{t-1}
  double vertex_inner = 0;        // a_{t+1} = <D(V_{t+1}), E_{t+1}>
  int64_t toggled = 0;            // |V_t xor V_{t-1}|, zero weights left out

  void Add(const StepSums& other) {
    vertex_loss_change += other.vertex_loss_change;
    vertex_inner += other.vertex_inner;
    toggled += other.toggled;
  }
};

struct ScreenedOutcome {
  std::vector<StepSums> sums;  // of the iterations taken, at least one
  bool stepped = true;         // false: U is that of V_t, E still that of M_t
  bool selected = true;        // false: after the last one the epoch must end, V be selected anew
};

// What rows gathered of G and shall use again is kept until Forget.
// Errors: Cancelled; rows are then at different iterations
template <typename Real>
class ScreenedSteps {
 public:
  virtual ~ScreenedSteps() = default;

  // Open-loop iterations from `first` on inside the epoch: one to `limit` of them.
  virtual absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t limit) = 0;

  // Iteration `iteration`. step_of(b_t - b_{t-1}) says the step; below 0: it cannot be taken here.
  virtual absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                                  absl::FunctionRef<double(double)> step_of) = 0;

  // The epoch has ended.
  virtual void Forget() {
    ForgetGrams();
    pool_.Clear();
  }

 protected:
  // One for every thread.
  struct Scratch {
    explicit Scratch(int64_t words) : row(words) {}

    ToggleScratch<Real> toggles;
    RowScratch<Real> row;
    ChosenColumns columns;
    GramRows<Real> gram;
  };

  // Both must outlive it.
  ScreenedSteps(ScreenedEpoch<Real>& epoch, const ParallelContext& context)
      : epoch_(epoch),
        context_(context),
        pool_([words = epoch.iterate().layer->words] { return std::make_unique<Scratch>(words); }) {
  }

  // Calls body(row, its block, scratch), blocks concurrently.
  template <typename Body>
  absl::Status ForEachRow(const Body& body) {
    const RowBlocks& blocks = epoch_.iterate().blocks;
    return context_.ForEach(blocks.count(), [&](int64_t block) {
      const typename ScratchPool<Scratch>::Lease lease(pool_);
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        if (context_.stopped()) return;
        body(row, static_cast<size_t>(block), lease.get());
      }
    });
  }
  // Where all rows take a step before the next one, each keeps what it gathers of G.
  void BeginGrams() {
    if (!grams_.empty()) return;
    grams_.resize(static_cast<size_t>(epoch_.iterate().layer->rows));
    for (int64_t row = 0; row < std::ssize(grams_); ++row) epoch_.row(row).BeginGram(gram(row), 0);
  }
  void ForgetGrams() { grams_.clear(); }
  GramRows<Real>& gram(int64_t row) { return grams_[static_cast<size_t>(row)]; }
  size_t block_count() const { return static_cast<size_t>(epoch_.iterate().blocks.count()); }

  ScreenedEpoch<Real>& epoch_;

 private:
  const ParallelContext& context_;
  ScratchPool<Scratch> pool_;
  std::vector<GramRows<Real>> grams_;  // of each row; empty: the epoch has just begun
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SCREENED_STEPS_H_
