#include "core/src/cpu/screen/screened_matrix.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/cpu/screen/screened_rows.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

template <typename Real>
ScreenedMatrix<Real>::ScreenedMatrix(ScreenedEpoch<Real>& epoch, RowSelector<Real>* rows,
                                     const ParallelContext& context)
    : epoch_(epoch), rows_(rows), context_(context) {}

template <typename Real>
void ScreenedMatrix<Real>::Prepare() {
  const Iterate<Real>& it = epoch_.iterate();
  scans_.resize(static_cast<size_t>(it.blocks.count()));
  if (!grams_.empty()) return;
  grams_.resize(static_cast<size_t>(it.layer->rows));
  for (int64_t row = 0; row < it.layer->rows; ++row) ForgetRow(row);
}

template <typename Real>
void ScreenedMatrix<Real>::ForgetRow(int64_t row) {
  epoch_.row(row).BeginGram(grams_[static_cast<size_t>(row)]);
}

template <typename Real>
void ScreenedMatrix<Real>::ApplyBlock(int64_t block) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  BlockScan& scan = scans_[static_cast<size_t>(block)];
  ToggleScratch<Real> scratch;
  scan.sums = {};
  for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
    ActiveRow<Real>& active = epoch_.row(row);
    active.Apply(epoch_.layer(), grams_[static_cast<size_t>(row)],
                 std::numeric_limits<int64_t>::max() / 2, scratch);
    scan.sums.vertex_loss_change += active.vertex_loss_change();
    scan.sums.toggled += active.toggled();
  }
}

template <typename Real>
void ScreenedMatrix<Real>::AdvanceBlock(int64_t block, double step) {
  Iterate<Real>& it = epoch_.iterate();
  BlockScan& scan = scans_[static_cast<size_t>(block)];
  scan.found.clear();
  scan.above = 0;
  SelectScratch<Real> scratch(it.layer->words);
  for (int64_t row = it.blocks.begin(block); row < it.blocks.end(block); ++row) {
    if (rows_ == nullptr) {
      ScanRow(row, step, scan, scratch);
    } else {
      SelectInRow(row, step, scratch);
    }
  }
}

// A row with a budget of its own, or whose groups have.
template <typename Real>
void ScreenedMatrix<Real>::SelectInRow(int64_t row, double step, SelectScratch<Real>& scratch) {
  if (StepAndSelect(epoch_, row, step, scratch)) return;
  const bool radius = !epoch_.row(row).WithinRadius();
  epoch_.LeaveRow(row);
  epoch_.Widen(row, radius);
  Iterate<Real>& it = epoch_.iterate();
  RowScratch<Real> whole(it.layer->words);
  rows_->Select(row, it.Row(row), Real{0}, whole, it.vertex.row(row));
  ChosenColumns columns;
  epoch_.BeginRow(row, columns);
  ForgetRow(row);
}

// One budget for all rows: what lies above the window of the guess is selected, what
// lies in it is found.
template <typename Real>
void ScreenedMatrix<Real>::ScanRow(int64_t row, double step, BlockScan& scan,
                                   SelectScratch<Real>& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  const ScoreWindow<Real>& guess = epoch_.shared_plan().guess;
  uint64_t* const window = scratch.window.data();
  active.Advance(epoch_.layer(), step, guess.low(), guess.high(), scratch.scores.data(),
                 active.vertex(), window);
  if (!active.WithinRadius()) {
    epoch_.LeaveRow(row);
    epoch_.Widen(row, true);
    Iterate<Real>& it = epoch_.iterate();
    std::copy_n(it.previous.row(row), it.layer->words, it.vertex.row(row));
    ChosenColumns columns;
    epoch_.BeginRow(row, columns);
    ForgetRow(row);
    AdvanceActive(active.Operands(), active.groups(), Real{0}, guess.low(), guess.high(),
                  scratch.scores.data(), active.vertex(), window);
  }
  scan.above += CountBits(active.vertex(), active.words()) + active.capacity;
  for (int64_t word = 0; word < active.words(); ++word) {
    ForEachBit(window[word], word, [&](int64_t lane) {
      scan.found.push_back(
          {scratch.scores.data()[lane], static_cast<uint32_t>(row), static_cast<uint32_t>(lane)});
    });
  }
}

// False: the threshold is not where the columns were chosen for.
template <typename Real>
absl::StatusOr<bool> ScreenedMatrix<Real>::FindThreshold() {
  RowPlan<Real>& plan = epoch_.shared_plan();
  ScoreWindow<Real>& guess = plan.guess;
  const int64_t free = epoch_.free_of_matrix();
  const auto count_above = [&] {
    return std::accumulate(scans_.begin(), scans_.end(), int64_t{0},
                           [](int64_t sum, const BlockScan& scan) { return sum + scan.above; });
  };
  const auto merge = [&] {
    merged_.clear();
    for (const BlockScan& scan : scans_) {
      merged_.insert(merged_.end(), scan.found.begin(), scan.found.end());
    }
  };
  merge();
  int64_t wanted = free - count_above();
  const bool hit = wanted >= 0 && (wanted <= std::ssize(merged_) || guess.low() == 0);
  if (!hit) {
    SPARSEFW_RETURN_IF_ERROR(CollectPositive());
    merge();
    wanted = free - count_above();
  }
  const bool all = wanted > std::ssize(merged_);  // every positive score
  any_found_ = wanted > 0 && !merged_.empty();
  Real threshold = hit ? guess.high() : 0;
  if (any_found_) {
    const auto last = merged_.begin() + std::min<int64_t>(wanted, std::ssize(merged_)) - 1;
    std::nth_element(merged_.begin(), last, merged_.end(), BetterFirst());
    last_ = *last;
    threshold = last_.score;
  }
  if (all) threshold = 0;
  guess.Move(threshold, hit);
  return plan.Follow(threshold);
}

// The guess missed: everything positive is found, nothing is above.
template <typename Real>
absl::Status ScreenedMatrix<Real>::CollectPositive() {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    BlockScan& scan = scans_[static_cast<size_t>(block)];
    scan.found.clear();
    scan.above = 0;
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      ActiveRow<Real>& active = epoch_.row(row);
      const RowOperands<Real> operands = active.Operands();
      std::fill_n(active.vertex(), active.words(), 0);
      scan.above += active.capacity;
      for (int64_t lane = 0; lane < active.lanes(); ++lane) {
        const Real score = operands.weights[lane] * operands.product[lane];
        if (!(score > 0)) continue;
        scan.found.push_back({score, static_cast<uint32_t>(row), static_cast<uint32_t>(lane)});
      }
    }
  });
}

template <typename Real>
absl::Status ScreenedMatrix<Real>::CommitBlocks() {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    BlockScan& scan = scans_[static_cast<size_t>(block)];
    if (any_found_ && rows_ == nullptr) {
      for (const Found& found : scan.found) {
        if (Better(last_, found)) continue;
        epoch_.row(found.row).vertex()[found.lane >> 6] |= uint64_t{1} << (found.lane & 63);
      }
    }
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      ActiveRow<Real>& active = epoch_.row(row);
      active.Commit();
      scan.sums.vertex_inner += active.movement.vertex_inner;
    }
  });
}

template <typename Real>
StepSums ScreenedMatrix<Real>::Total() const {
  StepSums total;
  for (const BlockScan& scan : scans_) {
    total.vertex_loss_change += scan.sums.vertex_loss_change;
    total.vertex_inner += scan.sums.vertex_inner;
    total.toggled += scan.sums.toggled;
  }
  return total;
}

template <typename Real>
absl::StatusOr<typename ScreenedMatrix<Real>::Outcome> ScreenedMatrix<Real>::Step(
    std::optional<double> step, absl::FunctionRef<double(double)> step_of) {
  Prepare();
  const int64_t blocks = epoch_.iterate().blocks.count();
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks, [&](int64_t block) {
    ApplyBlock(block);
    if (step.has_value()) AdvanceBlock(block, *step);
  }));
  Outcome outcome;
  outcome.sums = Total();
  if (!step.has_value()) {
    const double chosen = step_of(outcome.sums.vertex_loss_change);
    outcome.stepped = chosen >= 0;
    if (!outcome.stepped) return outcome;
    SPARSEFW_RETURN_IF_ERROR(
        context_.ForEach(blocks, [&](int64_t block) { AdvanceBlock(block, chosen); }));
  }
  if (rows_ == nullptr) {
    SPARSEFW_ASSIGN_OR_RETURN(outcome.selected, FindThreshold());
    if (!outcome.selected) return outcome;
  }
  SPARSEFW_RETURN_IF_ERROR(CommitBlocks());
  outcome.sums = Total();
  return outcome;
}

template class ScreenedMatrix<float>;
template class ScreenedMatrix<double>;

}  // namespace sparsefw::cpu
