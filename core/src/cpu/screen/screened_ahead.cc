#include "core/src/cpu/screen/screened_ahead.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>

#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/frank_wolfe/recurrence.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// A forecast from before so many iterations is forgotten.
constexpr int64_t kStale = 4;
constexpr int64_t kNever = -1;

}  // namespace

template <typename Real>
struct ScreenedAhead<Real>::Scratch {
  explicit Scratch(int64_t words) : select(words) {}

  ToggleScratch<Real> toggles;
  SelectScratch<Real> select;
  ChosenColumns columns;
};

template <typename Real>
ScreenedAhead<Real>::ScreenedAhead(ScreenedEpoch<Real>& epoch, const ParallelContext& context)
    : epoch_(epoch),
      context_(context),
      pool_([words = epoch.iterate().layer->words] { return std::make_unique<Scratch>(words); }) {}

template <typename Real>
ScreenedAhead<Real>::~ScreenedAhead() = default;

// V_t enters U, then the step, and what E_{t+1} says about the scores.
template <typename Real>
void ScreenedAhead<Real>::Advance(int64_t row, int64_t step, Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowStep& out = runs_[static_cast<size_t>(row)].steps[static_cast<size_t>(step)];
  const Cut& cut = cuts_[static_cast<size_t>(step)];
  active.Apply(epoch_.layer(), grams_[static_cast<size_t>(row)],
               std::numeric_limits<int64_t>::max() / 2, scratch.toggles);
  out.sums.vertex_loss_change = active.vertex_loss_change();
  out.sums.toggled = active.toggled();
  active.Advance(epoch_.layer(), OpenLoopStep<Real>(first_ + step), cut.low, cut.high,
                 scratch.select.scores.data(), active.vertex(), scratch.select.window.data());
}

template <typename Real>
void ScreenedAhead<Real>::Collect(int64_t row, int64_t step, Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = runs_[static_cast<size_t>(row)];
  RowStep& out = run.steps[static_cast<size_t>(step)];
  const Real* const scores = scratch.select.scores.data();
  const uint64_t* const window = scratch.select.window.data();
  out.over = CountBits(active.vertex(), active.words()) + active.capacity;
  run.near.resize(NearBegin(run, step));
  for (int64_t word = 0; word < active.words(); ++word) {
    ForEachBit(window[word], word, [&](int64_t lane) {
      run.near.push_back({{scores[lane], static_cast<uint32_t>(row), static_cast<uint32_t>(lane)}});
    });
  }
  out.near_end = run.near.size();
}

// The cut takes its part of those near; V_{t+1} is chosen.
template <typename Real>
void ScreenedAhead<Real>::Choose(int64_t row, int64_t step) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = runs_[static_cast<size_t>(row)];
  RowStep& out = run.steps[static_cast<size_t>(step)];
  const Cut& cut = cuts_[static_cast<size_t>(step)];
  for (size_t i = NearBegin(run, step); i < out.near_end; ++i) {
    Near& near = run.near[i];
    near.taken = cut.Takes(near.found);
    if (near.taken) active.vertex()[near.found.lane >> 6] |= uint64_t{1} << (near.found.lane & 63);
  }
  active.Commit();
  out.sums.vertex_inner = active.movement.vertex_inner;
  run.done = step + 1;
}

// From where the row is to the end of the run. Its state before iteration `save_at` is what
// it goes back to from then on.
template <typename Real>
void ScreenedAhead<Real>::Run(int64_t row, Scratch& scratch, int64_t save_at) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = runs_[static_cast<size_t>(row)];
  while (run.done < std::ssize(cuts_)) {
    if (run.done == save_at) {
      active.SaveTo(epoch_.layer(), run.saved);
      run.saved_at = save_at;
    }
    Advance(row, run.done, scratch);
    run.stalled = !active.WithinRadius();
    if (run.stalled) return;
    Collect(row, run.done, scratch);
    if (run.doubtful_at < 0 && IsDoubtful(run, run.done)) {
      active.SaveTo(epoch_.layer(), run.doubtful);
      run.doubtful_at = run.done;
    }
    Choose(row, run.done);
  }
}

template <typename Real>
bool ScreenedAhead<Real>::IsDoubtful(const RowRun& run, int64_t step) const {
  const Cut& cut = cuts_[static_cast<size_t>(step)];
  if (cut.exact) return false;
  const Real low = cut.predicted - cut.doubt;
  const Real high = cut.predicted + cut.doubt;
  const auto begin = run.near.begin() + static_cast<int64_t>(NearBegin(run, step));
  const auto end =
      run.near.begin() + static_cast<int64_t>(run.steps[static_cast<size_t>(step)].near_end);
  return std::any_of(begin, end, [&](const Near& near) {
    return low < near.found.score && near.found.score < high;
  });
}

template <typename Real>
void ScreenedAhead<Real>::GoBack(int64_t row) {
  RowRun& run = runs_[static_cast<size_t>(row)];
  epoch_.row(row).RestoreFrom(epoch_.layer(), run.saved);
  run.done = run.saved_at;
  run.doubtful_at = -1;
  run.stalled = false;
}

// The iterations that follow a wrong choice, from the state saved last before it.
template <typename Real>
void ScreenedAhead<Real>::Repeat(int64_t row, int64_t step, Scratch& scratch) {
  RowRun& run = runs_[static_cast<size_t>(row)];
  if (run.doubtful_at < 0 || run.doubtful_at > step) {
    GoBack(row);
    Run(row, scratch, step + 1);
    return;
  }
  epoch_.row(row).RestoreFrom(epoch_.layer(), run.doubtful);
  run.done = run.doubtful_at;
  run.doubtful_at = -1;
  run.stalled = false;
  Choose(row, run.done);
  Run(row, scratch, kNever);
}

template <typename Real>
absl::Status ScreenedAhead<Real>::RunAll(int64_t first, int64_t count) {
  const Iterate<Real>& it = epoch_.iterate();
  first_ = first;
  repeated_ = 0;
  cuts_.assign(static_cast<size_t>(count), Cut{});
  for (int64_t step = 0; step < count; ++step) {
    Cut& cut = cuts_[static_cast<size_t>(step)];
    const auto interval = forecast_.At(step + 1);
    cut.low = interval.low;
    cut.high = interval.high;
    cut.predicted = interval.middle;
    cut.doubt = interval.doubt;
  }
  runs_.resize(static_cast<size_t>(it.layer->rows));
  if (grams_.empty()) {
    grams_.resize(runs_.size());
    for (int64_t row = 0; row < it.layer->rows; ++row) {
      epoch_.row(row).BeginGram(grams_[static_cast<size_t>(row)]);
    }
  }
  return context_.ForEach(it.blocks.count(), [&](int64_t block) {
    const typename Pool::Lease lease(pool_);
    for (int64_t row = it.blocks.begin(block); row < it.blocks.end(block); ++row) {
      RowRun& run = runs_[static_cast<size_t>(row)];
      run.done = 0;
      run.doubtful_at = -1;
      run.restarted = false;
      run.near.clear();
      run.steps.assign(static_cast<size_t>(count), RowStep{});
      Run(row, lease.get(), 0);
    }
  });
}

// What is known now of the iterations after `step`, for rows that repeat them. Their windows
// stay: all rows must mean the same by a score that is near.
template <typename Real>
void ScreenedAhead<Real>::PredictAfter(int64_t step) {
  for (int64_t later = step + 1; later < std::ssize(cuts_); ++later) {
    Cut& cut = cuts_[static_cast<size_t>(later)];
    cut.predicted = std::clamp(forecast_.At(later - step).middle, cut.low, cut.high);
  }
}

// Everything before this iteration is exact, so that the row begins anew where it is.
template <typename Real>
void ScreenedAhead<Real>::Restart(int64_t row, int64_t step, Scratch& scratch) {
  Iterate<Real>& it = epoch_.iterate();
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = runs_[static_cast<size_t>(row)];
  const Cut& cut = cuts_[static_cast<size_t>(step)];
  epoch_.LeaveRow(row);
  epoch_.Widen(row, true);
  std::copy_n(it.previous.row(row), it.layer->words, it.vertex.row(row));
  epoch_.BeginRow(row, scratch.columns);
  active.BeginGram(grams_[static_cast<size_t>(row)]);
  AdvanceActive(active.Operands(), active.groups(), Real{0}, cut.low, cut.high,
                scratch.select.scores.data(), active.vertex(), scratch.select.window.data());
  Collect(row, step, scratch);
  run.doubtful_at = -1;
  run.stalled = false;
  run.restarted = true;
}

// What the rows of each block found near the threshold; those that could not go on begin anew.
template <typename Real>
absl::Status ScreenedAhead<Real>::ScanBlocks(int64_t step) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  scans_.resize(static_cast<size_t>(blocks.count()));
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    BlockScan& scan = scans_[static_cast<size_t>(block)];
    scan.Begin();
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      ScanRow(row, step, scan);
    }
  });
}

template <typename Real>
void ScreenedAhead<Real>::ScanRow(int64_t row, int64_t step, BlockScan& scan) {
  const RowRun& run = runs_[static_cast<size_t>(row)];
  if (run.stalled && run.done == step) {
    const typename Pool::Lease lease(pool_);
    Restart(row, step, lease.get());
  }
  const RowStep& taken = run.steps[static_cast<size_t>(step)];
  scan.over += taken.over;
  for (size_t i = NearBegin(run, step); i < taken.near_end; ++i) {
    scan.found.push_back(run.near[i].found);
  }
}

// Returns how many iterations are taken again.
template <typename Real>
int64_t ScreenedAhead<Real>::MendRow(int64_t row, int64_t step) {
  RowRun& run = runs_[static_cast<size_t>(row)];
  const typename Pool::Lease lease(pool_);
  if (run.restarted) {
    Choose(row, step);
    run.restarted = false;
    Run(row, lease.get(), step + 1);
    return std::ssize(cuts_) - step;
  }
  const bool doubted = run.doubtful_at >= 0 && run.doubtful_at <= step;
  const int64_t from = doubted ? run.doubtful_at + 1 : run.saved_at;
  Repeat(row, step, lease.get());
  return std::ssize(cuts_) - from;
}

// What was found of rows some time ago is in no cache by now.
template <typename Real>
void ScreenedAhead<Real>::FetchRow(int64_t row, int64_t step) const {
  if (row >= std::ssize(runs_)) return;
  const RowRun& run = runs_[static_cast<size_t>(row)];
  __builtin_prefetch(run.steps.data() + step);
  __builtin_prefetch(run.near.data());
}

// `scan_next`: the rows are scanned for the next iteration, too, while they are at hand.
template <typename Real>
absl::Status ScreenedAhead<Real>::Mend(int64_t step, bool scan_next) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks.count(), [&](int64_t block) {
    BlockScan& scan = scans_[static_cast<size_t>(block)];
    scan.Begin();
    scan.repeated = 0;
    scan.sums = {};
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      FetchRow(row + 2, step);
      const RowRun& run = runs_[static_cast<size_t>(row)];
      if (IsWrong(run, step)) scan.repeated += MendRow(row, step);
      scan.sums.Add(run.steps[static_cast<size_t>(step)].sums);
      if (scan_next) ScanRow(row, step + 1, scan);
    }
  }));
  for (const BlockScan& scan : scans_) repeated_ += scan.repeated;
  return absl::OkStatus();
}

// Every row at E_{t+1} of the iteration, its vertex not chosen; all of its positive scores
// are near.
template <typename Real>
absl::Status ScreenedAhead<Real>::Settle(int64_t step) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    const typename Pool::Lease lease(pool_);
    Scratch& scratch = lease.get();
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      RowRun& run = runs_[static_cast<size_t>(row)];
      if (!run.restarted) {
        GoBack(row);
        while (run.done < step) {
          Advance(row, run.done, scratch);
          epoch_.row(row).WithinRadius();
          Collect(row, run.done, scratch);
          Choose(row, run.done);
        }
        Advance(row, step, scratch);
        epoch_.row(row).WithinRadius();
      }
      CollectPositive(row, step);
    }
    SumBlock(block, step);
  });
}

template <typename Real>
absl::Status ScreenedAhead<Real>::ChooseAll(int64_t step) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  return context_.ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) Choose(row, step);
    SumBlock(block, step);
  });
}

template <typename Real>
absl::StatusOr<typename ScreenedAhead<Real>::Outcome> ScreenedAhead<Real>::Take(int64_t first,
                                                                                int64_t limit) {
  RowPlan<Real>& plan = epoch_.shared_plan();
  if (first - next_ > kStale || first < next_) forecast_.Forget();
  forecast_.Begin(plan.guess.threshold);
  const int64_t count = std::min(limit, forecast_.length());
  SPARSEFW_RETURN_IF_ERROR(RunAll(first, count));
  Outcome outcome;
  bool missed = false;
  SPARSEFW_RETURN_IF_ERROR(ScanBlocks(0));
  for (int64_t step = 0; step < count && outcome.selected && !missed; ++step) {
    std::optional<Real> threshold = FindCut(step);
    missed = !threshold.has_value();
    if (missed) {
      SPARSEFW_RETURN_IF_ERROR(Settle(step));
      SPARSEFW_RETURN_IF_ERROR(ScanBlocks(step));
      cuts_[static_cast<size_t>(step)].low = 0;
      threshold = FindCut(step);
    }
    // Without a threshold all that are wanted are beyond the columns' window.
    outcome.selected = threshold.has_value() && plan.Follow(*threshold);
    if (outcome.selected) {
      plan.guess.Move(*threshold, true);
      forecast_.Add(*threshold);
      PredictAfter(step);
      SPARSEFW_RETURN_IF_ERROR(missed ? ChooseAll(step) : Mend(step, step + 1 < count));
    } else if (!missed) {
      SPARSEFW_RETURN_IF_ERROR(Settle(step));
    }
    outcome.sums.push_back(Total());
  }
  next_ = first + std::ssize(outcome.sums);
  forecast_.Learn(count * std::ssize(runs_), repeated_, missed);
  return outcome;
}

template class ScreenedAhead<float>;
template class ScreenedAhead<double>;

}  // namespace sparsefw::cpu
