#include "core/src/cpu/screen/speculative_steps.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/src/frank_wolfe/recurrence.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// A forecast from before so many iterations is forgotten.
constexpr int64_t kStale = 4;
constexpr int64_t kNever = -1;

}  // namespace

// `begins`: the epoch does.
template <typename Real>
void SpeculativeSteps<Real>::BeginRun(int64_t row, bool begins) {
  RowRun& run = this->run(row);
  if (begins) epoch_.row(row).BeginGram(run.gram, 0);
  run.done = 0;
  run.steps.assign(thresholds_.size(), RowStep{});
}

// V_t enters U.
template <typename Real>
void SpeculativeSteps<Real>::Apply(int64_t row, Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = this->run(row);
  StepSums& sums = run.steps[static_cast<size_t>(run.done)].sums;
  active.Apply(epoch_.layer(), run.gram, scratch.toggles);
  sums.vertex_loss_change = active.vertex_loss_change();
  sums.toggled = active.toggled();
}

// E_t -> E_{t+1}, and what that says about the scores.
template <typename Real>
void SpeculativeSteps<Real>::Advance(int64_t row, double step_size, Scratch& scratch) {
  epoch_.row(row).Advance(epoch_.layer(), step_size);
  FindCandidates(row, step_size, scratch);
  run(row).stalled = !epoch_.row(row).WithinRadius();
}

template <typename Real>
void SpeculativeSteps<Real>::FindCandidates(int64_t row, double step_size, Scratch& scratch) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = this->run(row);
  RowStep& out = run.steps[static_cast<size_t>(run.done)];
  const StepThreshold& threshold = this->threshold(run.done);
  const RowOperands<Real> operands = active.Operands();
  Kernels<Real>().update_and_scan(operands, static_cast<Real>(step_size), threshold.low,
                                  threshold.high, active.vertex(), scratch.row.bits.data());
  out.above = CountBits(active.vertex(), active.words()) + active.capacity;
  run.candidates.resize(CandidatesBegin(run, run.done));
  for (int64_t word = 0; word < active.words(); ++word) {
    ForEachBit(scratch.row.bits.data()[word], word, [&](int64_t lane) {
      run.candidates.push_back({{operands.weights[lane] * operands.product[lane],
                                 static_cast<uint32_t>(row), static_cast<uint32_t>(lane)}});
    });
  }
  out.candidates_end = run.candidates.size();
}

// The threshold takes its part of the candidates; V_{t+1} is chosen.
template <typename Real>
void SpeculativeSteps<Real>::Choose(int64_t row) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = this->run(row);
  RowStep& out = run.steps[static_cast<size_t>(run.done)];
  const StepThreshold& threshold = this->threshold(run.done);
  for (size_t i = CandidatesBegin(run, run.done); i < out.candidates_end; ++i) {
    Candidate& candidate = run.candidates[i];
    candidate.taken = threshold.Selects(candidate.score);
    const uint32_t lane = candidate.score.col;
    if (candidate.taken) SetBit(active.vertex(), lane);
  }
  active.Commit();
  out.sums.vertex_inner = active.movement().vertex_inner;
  ++run.done;
}

template <typename Real>
void SpeculativeSteps<Real>::SaveCheckpoint(int64_t row) {
  epoch_.row(row).SaveTo(epoch_.layer(), run(row).checkpoint);
  run(row).checkpoint_at = run(row).done;
}

template <typename Real>
void SpeculativeSteps<Real>::Rollback(int64_t row) {
  RowRun& run = this->run(row);
  epoch_.row(row).RestoreFrom(epoch_.layer(), run.checkpoint);
  run.done = run.checkpoint_at;
  run.stalled = false;
}

// Takes the row from where it is to the end of the run.
template <typename Real>
void SpeculativeSteps<Real>::Speculate(int64_t row, int64_t checkpoint_at, Scratch& scratch) {
  RowRun& run = this->run(row);
  while (run.done < std::ssize(thresholds_)) {
    Apply(row, scratch);
    Advance(row, OpenLoopStep<Real>(first_ + run.done), scratch);
    if (run.stalled || thresholds_.size() == 1) return;
    if (run.done == checkpoint_at) SaveCheckpoint(row);
    Choose(row);
  }
}

// Everything before the iteration at which it stalled is exact, so that the row begins anew there.
template <typename Real>
void SpeculativeSteps<Real>::Restart(int64_t row, Scratch& scratch) {
  Iterate<Real>& it = epoch_.iterate();
  epoch_.RestartRow(row, scratch.columns, [&] {
    std::copy_n(it.previous.row(row), it.layer->words, it.vertex.row(row));
  });
  epoch_.row(row).BeginGram(run(row).gram, 0);
  FindCandidates(row, 0, scratch);
  run(row).stalled = false;
}

// Whether the row chose another vertex than the threshold says.
template <typename Real>
bool SpeculativeSteps<Real>::IsWrong(const RowRun& run, int64_t step) const {
  const StepThreshold& threshold = thresholds_[static_cast<size_t>(step)];
  const auto begin = run.candidates.begin() + static_cast<int64_t>(CandidatesBegin(run, step));
  const auto end = run.candidates.begin() +
                   static_cast<int64_t>(run.steps[static_cast<size_t>(step)].candidates_end);
  return std::any_of(begin, end, [&](const Candidate& candidate) {
    return candidate.taken != threshold.Selects(candidate.score);
  });
}

// Whether the epoch begins with this run.
template <typename Real>
bool SpeculativeSteps<Real>::BeginRuns(int64_t first, int64_t limit) {
  if (first - next_ > kStale || first < next_) forecast_.Forget();
  forecast_.Begin(epoch_.shared_plan().last.threshold);
  first_ = first;
  thresholds_.clear();
  const int64_t count = std::min(limit, forecast_.length());
  for (int64_t step = 0; step < count; ++step) {
    const auto interval = forecast_.At(step + 1);
    thresholds_.push_back({interval.low, interval.high, interval.middle, {}});
  }
  for (BlockScan& scan : scans_) scan.repeated = 0;
  const bool begins = runs_.empty();
  runs_.resize(static_cast<size_t>(epoch_.iterate().layer->rows));
  return begins;
}

// Collects what the rows found near the threshold; rows that stalled here begin anew.
template <typename Real>
absl::Status SpeculativeSteps<Real>::CollectScores(int64_t step) {
  for (BlockScan& scan : scans_) {
    scan.scores.above = 0;
    scan.scores.inside.clear();
  }
  return this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
    BlockScan& scan = scans_[block];
    RowRun& run = this->run(row);
    if (run.stalled && run.done == step) Restart(row, scratch);
    const RowStep& found = run.steps[static_cast<size_t>(step)];
    scan.scores.above += found.above;
    for (size_t i = CandidatesBegin(run, step); i < found.candidates_end; ++i) {
      scan.scores.inside.push_back(run.candidates[i].score);
    }
  });
}

template <typename Real>
std::optional<Threshold<Real>> SpeculativeSteps<Real>::Find(int64_t step) {
  const StepThreshold& window = threshold(step);
  auto found = FindThreshold(scans_, epoch_.free_of_matrix(), window.low, window.high, merged_);
  // The scores above the window are exactly as many as are wanted: their least is not known.
  if (found && !found->any && found->value > 0) return std::nullopt;
  return found;
}

// All rows at E_{t+1} of the iteration, with all positive scores as candidates.
template <typename Real>
absl::Status SpeculativeSteps<Real>::EndRunAt(int64_t step) {
  thresholds_.resize(static_cast<size_t>(step + 1));
  threshold(step).low = 0;
  threshold(step).high = std::numeric_limits<Real>::max();
  return this->ForEachRow([&](int64_t row, size_t, Scratch& scratch) {
    if (run(row).done > step) Rollback(row);
    if (run(row).done == step) {
      FindCandidates(row, 0, scratch);
    } else {
      Choose(row);
      Speculate(row, kNever, scratch);
    }
  });
}

// Rows that chose another vertex go back, those that wait choose theirs; sums up the iteration.
template <typename Real>
absl::Status SpeculativeSteps<Real>::Verify(int64_t step) {
  for (BlockScan& scan : scans_) scan.sums = {};
  return this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
    BlockScan& scan = scans_[block];
    RowRun& run = this->run(row);
    if (run.done > step && IsWrong(run, step)) {
      Rollback(row);
      scan.repeated += std::ssize(thresholds_) - run.done - 1;
    }
    if (run.done <= step) {
      Choose(row);
      Speculate(row, step + 1, scratch);
    }
    scan.sums.Add(run.steps[static_cast<size_t>(step)].sums);
  });
}

template <typename Real>
StepSums SpeculativeSteps<Real>::Total() const {
  StepSums total;
  for (const BlockScan& scan : scans_) total.Add(scan.sums);
  return total;
}

// The run, iteration by iteration.
template <typename Real>
absl::StatusOr<ScreenedOutcome> SpeculativeSteps<Real>::VerifyAll() {
  RowPlan<Real>& plan = epoch_.shared_plan();
  ScreenedOutcome outcome;
  for (int64_t step = 0; step < std::ssize(thresholds_) && outcome.selected; ++step) {
    SPARSEFW_RETURN_IF_ERROR(CollectScores(step));
    std::optional<Threshold<Real>> found = Find(step);
    missed_ = !found.has_value();
    if (missed_) {
      SPARSEFW_RETURN_IF_ERROR(EndRunAt(step));
      SPARSEFW_RETURN_IF_ERROR(CollectScores(step));
      found = Find(step);
    }
    // No threshold: all wanted scores are beyond the columns' window.
    outcome.selected = found.has_value() && plan.Follow(found->value);
    if (outcome.selected) {
      threshold(step).exact = found;
      plan.last.threshold = found->value;
      forecast_.Add(found->value);
      // Windows stay: all rows must mean the same by a candidate.
      for (int64_t later = step + 1; later < std::ssize(thresholds_); ++later) {
        StepThreshold& next = threshold(later);
        next.predicted = std::clamp(forecast_.At(later - step).middle, next.low, next.high);
      }
    } else if (!missed_) {
      SPARSEFW_RETURN_IF_ERROR(EndRunAt(step));
    }
    SPARSEFW_RETURN_IF_ERROR(Verify(step));
    outcome.sums.push_back(Total());
  }
  next_ = first_ + std::ssize(outcome.sums);
  return outcome;
}

template <typename Real>
absl::StatusOr<ScreenedOutcome> SpeculativeSteps<Real>::Take(int64_t first, int64_t limit) {
  const bool begins = BeginRuns(first, limit);
  const int64_t taken = std::ssize(thresholds_) * std::ssize(runs_);
  SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t, Scratch& scratch) {
    BeginRun(row, begins);
    Speculate(row, 0, scratch);
  }));
  SPARSEFW_ASSIGN_OR_RETURN(ScreenedOutcome outcome, VerifyAll());
  int64_t repeated = 0;
  for (const BlockScan& scan : scans_) repeated += scan.repeated;
  forecast_.Learn(taken, repeated, missed_);
  return outcome;
}

template <typename Real>
absl::StatusOr<ScreenedOutcome> SpeculativeSteps<Real>::TakeOne(
    int64_t iteration, absl::FunctionRef<double(double)> step_of) {
  const bool begins = BeginRuns(iteration, 1);
  for (BlockScan& scan : scans_) scan.sums = {};
  SPARSEFW_RETURN_IF_ERROR(this->ForEachRow([&](int64_t row, size_t block, Scratch& scratch) {
    BeginRun(row, begins);
    Apply(row, scratch);
    scans_[block].sums.Add(run(row).steps[0].sums);
  }));
  const StepSums sums = Total();
  const double step_size = step_of(sums.vertex_loss_change);
  if (step_size < 0) return ScreenedOutcome{.sums = {sums}, .stepped = false};
  SPARSEFW_RETURN_IF_ERROR(this->ForEachRow(
      [&](int64_t row, size_t, Scratch& scratch) { Advance(row, step_size, scratch); }));
  return VerifyAll();
}

template class SpeculativeSteps<float>;
template class SpeculativeSteps<double>;

}  // namespace sparsefw::cpu
