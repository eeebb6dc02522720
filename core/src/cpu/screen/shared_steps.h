// Screened iterations where one budget serves the matrix: all rows take a step before the next one.
//
// The threshold of an iteration follows from the scores of all rows, but it moves little. So it
// is found among the scores in a window around its forecast. Where the window misses it, all
// positive scores are looked at.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/src/cpu/screen/screened_steps.h"
#include "core/src/cpu/screen/threshold_forecast.h"
#include "core/src/cpu/select/threshold.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

// Memory: what every row gathers of G, and the scores in the window.
template <typename Real>
class SharedSteps final : public ScreenedSteps<Real> {
 public:
  // Both must outlive it.
  SharedSteps(ScreenedEpoch<Real>& epoch, const ParallelContext& context)
      : ScreenedSteps<Real>(epoch, context), scans_(this->block_count()) {}

  // Takes one of them.
  absl::StatusOr<ScreenedOutcome> Take(int64_t first, int64_t /*limit*/) override {
    Begin(first);
    SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
      Apply(row, block, scratch);
      Move(row, block, OpenLoopStep<Real>(first), scratch);
    }));
    return ChooseVertex();
  }

  absl::StatusOr<ScreenedOutcome> TakeOne(int64_t iteration,
                                          absl::FunctionRef<double(double)> step_of) override {
    Begin(iteration);
    SPARSEFW_RETURN_IF_ERROR(this->ForEachRow(
        [&](int64_t row, size_t block, Scratch& scratch) { Apply(row, block, scratch); }));
    const StepSums sums = Total();
    const double step = step_of(sums.vertex_loss_change);
    if (step < 0) return ScreenedOutcome{.sums = {sums}, .stepped = false};
    SPARSEFW_RETURN_IF_ERROR(this->ForEachRow(
        [&](int64_t row, size_t block, Scratch& scratch) { Move(row, block, step, scratch); }));
    return ChooseVertex();
  }

  void Forget() override {
    ScreenedSteps<Real>::Forget();
    for (BlockScan& scan : scans_) scan.scores = {};
    std::vector<MatrixCandidate<Real>>().swap(merged_);
  }

 private:
  // What a block of rows found in an iteration.
  struct BlockScan {
    WindowScores<Real> scores;  // row by row; of each its lanes
    size_t next = 0;            // the first score inside that is not decided yet
    StepSums sums;
  };
  // A forecast from before so many iterations is forgotten.
  static constexpr int64_t kStale = 4;
  using typename ScreenedSteps<Real>::Scratch;
  using ScreenedSteps<Real>::epoch_;

  void Begin(int64_t iteration) {
    if (iteration - next_ > kStale || iteration < next_) forecast_.Forget();
    next_ = iteration + 1;
    forecast_.Begin(epoch_.shared_plan().last.threshold);
    window_ = forecast_.Next();
    for (BlockScan& scan : scans_) {
      scan.scores.Clear();
      scan.next = 0;
      scan.sums = {};
    }
    this->BeginGrams();
  }

  // V_t enters U.
  void Apply(int64_t row, size_t block, Scratch& scratch) {
    ActiveRow<Real>& active = epoch_.row(row);
    StepSums& sums = scans_[block].sums;
    active.Apply(epoch_.layer(), this->gram(row), scratch.toggles);
    sums.vertex_loss_change += active.vertex_loss_change();
    sums.toggled += active.toggled();
  }

  // E_t -> E_{t+1}. A row that leaves its radius begins anew.
  void Move(int64_t row, size_t block, double step, Scratch& scratch) {
    epoch_.row(row).Advance(epoch_.layer(), step);
    if (!epoch_.row(row).WithinRadius()) {
      Iterate<Real>& it = epoch_.iterate();
      epoch_.RestartRow(row, scratch.columns, [&] {
        std::copy_n(it.previous.row(row), it.layer->words, it.vertex.row(row));
      });
      epoch_.row(row).BeginGram(this->gram(row), 0);
      step = 0;
    }
    Scan(row, block, step, scratch);
  }

  // What lies above the window is in the vertex; what lies inside waits for the threshold.
  void Scan(int64_t row, size_t block, double step, Scratch& scratch) {
    ActiveRow<Real>& active = epoch_.row(row);
    WindowScores<Real>& scores = scans_[block].scores;
    const RowOperands<Real> operands = active.Operands();
    Kernels<Real>().update_and_scan(operands, static_cast<Real>(step), window_.low, window_.high,
                                    active.vertex(), scratch.row.bits.data());
    scores.above += CountBits(active.vertex(), active.words()) + active.capacity;
    for (int64_t word = 0; word < active.words(); ++word) {
      ForEachBit(scratch.row.bits.data()[word], word, [&](int64_t lane) {
        scores.inside.push_back({operands.weights[lane] * operands.product[lane],
                                 static_cast<uint32_t>(row), static_cast<uint32_t>(lane)});
      });
    }
  }

  absl::Status ScanAnew() {
    window_ = {0, std::numeric_limits<Real>::max()};
    for (BlockScan& scan : scans_) scan.scores.Clear();
    return this->ForEachRow(
        [&](int64_t row, size_t block, Scratch& scratch) { Scan(row, block, 0, scratch); });
  }

  // V_{t+1} of the row is complete.
  void Choose(int64_t row, size_t block, const Threshold<Real>& threshold) {
    ActiveRow<Real>& active = epoch_.row(row);
    BlockScan& scan = scans_[block];
    const std::vector<MatrixCandidate<Real>>& inside = scan.scores.inside;
    for (; scan.next < inside.size() && inside[scan.next].row == row; ++scan.next) {
      if (threshold.Selects(inside[scan.next])) SetBit(active.vertex(), inside[scan.next].col);
    }
    active.Commit();
    scan.sums.vertex_inner += active.movement().vertex_inner;
  }

  absl::StatusOr<ScreenedOutcome> ChooseVertex() {
    const auto find = [&]() -> std::optional<Threshold<Real>> {
      auto found = FindThreshold(scans_, epoch_.iterate().free, window_.low, window_.high, merged_);
      return found && found->beyond ? std::nullopt : found;
    };
    std::optional<Threshold<Real>> found = find();
    if (!found) {
      SPARSEFW_RETURN_IF_ERROR(ScanAnew());
      found = find();
    }
    RowPlan<Real>& plan = epoch_.shared_plan();
    ScreenedOutcome outcome;
    // No threshold: all wanted scores are beyond the columns' window.
    outcome.selected = found && plan.Follow(found->value);
    if (outcome.selected) {
      plan.last.threshold = found->value;
      forecast_.Add(found->value);
      SPARSEFW_RETURN_IF_ERROR(this->ForEachRow(
          [&](int64_t row, size_t block, Scratch&) { Choose(row, block, *found); }));
    }
    outcome.sums.push_back(Total());
    return outcome;
  }

  StepSums Total() const {
    StepSums total;
    for (const BlockScan& scan : scans_) total.Add(scan.sums);
    return total;
  }

  ThresholdForecast<Real> forecast_;
  typename ThresholdForecast<Real>::Interval window_;
  int64_t next_ = 0;              // the iteration after the last one
  std::vector<BlockScan> scans_;  // of each block
  std::vector<MatrixCandidate<Real>> merged_;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_SHARED_STEPS_H_
