// The threshold that all rows share, from what each found near it.
#include <algorithm>
#include <iterator>
#include <optional>

#include "core/src/cpu/screen/screened_ahead.h"

namespace sparsefw::cpu {

// The threshold of the iteration from what all rows found near it; none: it is not there.
template <typename Real>
std::optional<Real> ScreenedAhead<Real>::FindCut(int64_t step) {
  Cut& cut = cuts_[static_cast<size_t>(step)];
  int64_t wanted = epoch_.free_of_matrix();
  merged_.clear();
  for (const BlockScan& scan : scans_) {
    wanted -= scan.over;
    merged_.insert(merged_.end(), scan.found.begin(), scan.found.end());
  }
  const bool all = wanted > std::ssize(merged_);  // every positive score
  if (wanted < 1 || (all && cut.low > 0)) return std::nullopt;
  cut.exact = true;
  cut.any = !merged_.empty();
  if (!cut.any) return Real{0};
  const auto last = merged_.begin() + std::min<int64_t>(wanted, std::ssize(merged_)) - 1;
  std::nth_element(merged_.begin(), last, merged_.end(), BetterFirst());
  cut.last = *last;
  return all ? Real{0} : cut.last.score;
}

// Whether the row chose another vertex than the exact threshold says, or none.
template <typename Real>
bool ScreenedAhead<Real>::IsWrong(const RowRun& run, int64_t step) const {
  const Cut& cut = cuts_[static_cast<size_t>(step)];
  if (run.restarted) return true;
  for (size_t i = NearBegin(run, step); i < run.steps[static_cast<size_t>(step)].near_end; ++i) {
    if (run.near[i].taken != cut.Takes(run.near[i].found)) return true;
  }
  return false;
}

template <typename Real>
void ScreenedAhead<Real>::CollectPositive(int64_t row, int64_t step) {
  ActiveRow<Real>& active = epoch_.row(row);
  RowRun& run = runs_[static_cast<size_t>(row)];
  RowStep& out = run.steps[static_cast<size_t>(step)];
  const RowOperands<Real> operands = active.Operands();
  std::fill_n(active.vertex(), active.words(), 0);
  out.over = active.capacity;
  run.near.resize(NearBegin(run, step));
  for (int64_t lane = 0; lane < active.lanes(); ++lane) {
    const Real score = operands.weights[lane] * operands.product[lane];
    if (!(score > 0)) continue;
    run.near.push_back({{score, static_cast<uint32_t>(row), static_cast<uint32_t>(lane)}});
  }
  out.near_end = run.near.size();
}

template <typename Real>
void ScreenedAhead<Real>::SumBlock(int64_t block, int64_t step) {
  const RowBlocks& blocks = epoch_.iterate().blocks;
  StepSums& sums = scans_[static_cast<size_t>(block)].sums;
  sums = {};
  for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
    sums.Add(runs_[static_cast<size_t>(row)].steps[static_cast<size_t>(step)].sums);
  }
}

// The rows of a block in order, then the blocks.
template <typename Real>
StepSums ScreenedAhead<Real>::Total() const {
  StepSums total;
  for (const BlockScan& scan : scans_) total.Add(scan.sums);
  return total;
}

#define SPARSEFW_INSTANTIATE(Real)                                          \
  template std::optional<Real> ScreenedAhead<Real>::FindCut(int64_t);       \
  template bool ScreenedAhead<Real>::IsWrong(const RowRun&, int64_t) const; \
  template void ScreenedAhead<Real>::CollectPositive(int64_t, int64_t);     \
  template void ScreenedAhead<Real>::SumBlock(int64_t, int64_t);            \
  template StepSums ScreenedAhead<Real>::Total() const;
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
