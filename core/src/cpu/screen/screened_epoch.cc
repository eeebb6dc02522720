#include "core/src/cpu/screen/screened_epoch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "core/src/cpu/iteration/tiled_product.h"
#include "core/src/cpu/linalg/panel_kernels.h"
#include "core/src/cpu/screen/screen_kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {

template <typename Real>
ScreenedEpoch<Real>::ScreenedEpoch(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed,
                                   Screening screening, const ParallelContext& context)
    : iterate_(iterate),
      relaxed_(relaxed),
      always_(screening == Screening::kAlways),
      context_(context),
      choice_(iterate),
      layer_{iterate, relaxed},
      plans_(static_cast<size_t>(iterate.layer->rows)),
      length_(kFirstEpoch),
      next_try_(always_ ? 1 : kFirstEpoch) {}

template <typename Real>
bool ScreenedEpoch<Real>::MayBegin(int64_t iteration) const {
  return iteration >= next_try_ && iterate_.layer->cols <= (int64_t{1} << 15);
}

template <typename Real>
void ScreenedEpoch<Real>::PlanRow(int64_t row, double step) {
  RowPlan<Real>& plan = this->plan(row);
  ActiveRow<Real>& active = this->row(row);
  active.Measure(layer_, row);
  const RowMovement& movement = active.movement();
  const double noise = std::sqrt(4 * MovementNoise<Real>() * std::abs(movement.start_loss));
  if (plan.radius == 0) plan.radius = kFirstRadius * step * std::sqrt(movement.VertexAway());
  plan.radius = std::max(plan.radius, noise);
  active.radius = plan.radius;
  plan.restarts = 0;
}

template <typename Real>
void ScreenedEpoch<Real>::ChooseRow(int64_t row, ChosenColumns& out) {
  RowPlan<Real>& plan = this->plan(row);
  if (budget_by_row()) {
    plan.Begin(choice_.Threshold(row, iterate_.FreeOf(row)), kFirstWindow);
    choice_.Choose(row, plan.radius, plan.window(), out);
  } else {
    choice_.Choose(row, plan.radius, shared_.window(), out);
  }
}

template <typename Real>
void ScreenedEpoch<Real>::BeginRow(int64_t row, ChosenColumns& scratch) {
  ChooseRow(row, scratch);
  ActiveRow<Real>& active = this->row(row);
  const int64_t above = CountBits(scratch.above.data(), std::ssize(scratch.above));
  active.capacity = budget_by_row() ? iterate_.FreeOf(row) - above : above;
  active.Load(layer_, row, scratch.active.data());
}

// The threshold of one budget for all rows.
template <typename Real>
void ScreenedEpoch<Real>::PlanThreshold() {
  int64_t free = iterate_.free;
  Real least = std::numeric_limits<Real>::max();
  for (int64_t row = 0; row < iterate_.layer->rows; ++row) {
    const uint64_t* const vertex = iterate_.vertex.row(row);
    const int64_t words = iterate_.layer->words;
    free -= CountBits(vertex, words);
    least = std::min(least,
                     KernelsOfScreening<Real>().least_score(words, iterate_.layer->weights.row(row),
                                                            iterate_.product.row(row), vertex));
  }
  shared_.Begin(free > 0 ? 0 : least, kFirstSharedWindow);
}

// Decides by the columns that each row would have.
template <typename Real>
bool ScreenedEpoch<Real>::Pays(const std::vector<int64_t>& lanes, bool together) const {
  if (always_) return true;
  double bytes = 0;
  double share = 0;
  for (const int64_t count : lanes) {
    const auto active = static_cast<double>(count);
    share += active;
    bytes += active * static_cast<double>(ActiveRow<Real>::kBytesPerLane);
    if (together) bytes += kToggledShare * active * active * static_cast<double>(sizeof(Real));
  }
  const auto size = static_cast<double>(iterate_.layer->rows * iterate_.layer->cols);
  return share <= kLargestShare * size &&
         bytes <= static_cast<double>(kValuesPerWeight * static_cast<int64_t>(sizeof(Real))) * size;
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::Begin(const Recurrence& at, bool together, bool refreshes,
                                        absl::FunctionRef<void()> release) {
  const RowBlocks& blocks = iterate_.blocks;
  rows_.resize(static_cast<size_t>(iterate_.layer->rows));
  if (iterate_.groups.whole_matrix) PlanThreshold();
  const double step = at.step_size > 0 ? at.step_size : OpenLoopStep<Real>(at.iteration);
  std::vector<int64_t> lanes(rows_.size());
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks.count(), [&](int64_t block) {
    ChosenColumns chosen;
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      PlanRow(row, step);
      ChooseRow(row, chosen);
      lanes[static_cast<size_t>(row)] = CountBits(chosen.active.data(), std::ssize(chosen.active));
    }
  }));
  if (!Pays(lanes, together)) {
    rows_.clear();
    next_try_ = at.iteration + kFirstEpoch;
    std::fill(plans_.begin(), plans_.end(), RowPlan<Real>());
    shared_ = {};
    return absl::OkStatus();
  }
  iterate_.older.Forget();  // the epoch takes its memory
  release();
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(blocks.count(), [&](int64_t block) {
    ChosenColumns scratch;
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      BeginRow(row, scratch);
      this->row(row).Commit();
    }
  }));
  running_ = true;
  active_ = std::accumulate(lanes.begin(), lanes.end(), int64_t{0});
  begin_ = at.iteration;
  end_ = begin_ + (refreshes ? std::min(length_, StepsBeforeRefresh(begin_)) : length_);
  ++counts_.epochs;
  return absl::OkStatus();
}

template <typename Real>
double ScreenedEpoch<Real>::ShareNow() const {
  return static_cast<double>(active_) /
         (static_cast<double>(iterate_.layer->rows) * static_cast<double>(iterate_.layer->cols));
}

template <typename Real>
ScreeningCounts ScreenedEpoch<Real>::CountsAt(int64_t iteration) const {
  ScreeningCounts counts = counts_;
  if (running_) {
    counts.iterations += iteration - begin_;
    counts.active_share += static_cast<double>(iteration - begin_) * ShareNow();
  }
  if (counts.iterations > 0) counts.active_share /= static_cast<double>(counts.iterations);
  return counts;
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::StoreMasks() {
  return context_.ForEachRow(iterate_.blocks,
                             [&](int64_t row) { this->row(row).StoreMask(layer_); });
}

template <typename Real>
void ScreenedEpoch<Real>::LeaveRow(int64_t row) {
  const PanelView<Real> gram = iterate_.layer->gram.view();
  SparseRows<Real> product_terms;
  SparseRows<Real> vertex_terms;
  product_terms.Reset(gram.depth, gram.depth);
  vertex_terms.Reset(gram.depth, gram.depth);
  this->row(row).Leave(layer_, product_terms, vertex_terms);
  const auto add = [&](const SparseRows<Real>& terms, Matrix<Real>& out) {
    KernelsOfPanels<Real>().add_sparse_product({.a = terms,
                                                .gram = gram,
                                                .panels = {0, gram.count},
                                                .out = out.row(row),
                                                .out_stride = iterate_.layer->stride()});
  };
  add(product_terms, iterate_.product);
  add(vertex_terms, iterate_.vertex_product);
  this->row(row).StoreMask(layer_);
}

template <typename Real>
void ScreenedEpoch<Real>::RestartRow(int64_t row, ChosenColumns& scratch,
                                     absl::FunctionRef<void()> select) {
  RowPlan<Real>& plan = this->plan(row);
  const int64_t restarts = plan.restarts + 1;
  if (this->row(row).WithinRadius()) {
    plan.Widen();
  } else {
    plan.radius *= kGrowth;
  }
  LeaveRow(row);
  PlanRow(row, 0);
  plan.restarts = restarts;
  select();
  BeginRow(row, scratch);
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::LeaveBlocks(int64_t first, int64_t end) {
  const RowBlocks& blocks = iterate_.blocks;
  const auto count = static_cast<size_t>(end - first);
  if (product_terms_.size() < count) product_terms_.resize(count);
  if (vertex_terms_.size() < count) vertex_terms_.resize(count);
  SPARSEFW_RETURN_IF_ERROR(context_.ForEach(end - first, [&](int64_t index) {
    SparseRows<Real>& product_terms = product_terms_[static_cast<size_t>(index)];
    SparseRows<Real>& vertex_terms = vertex_terms_[static_cast<size_t>(index)];
    product_terms.Reset(iterate_.layer->cols, kTileDepth<Real>);
    vertex_terms.Reset(iterate_.layer->cols, kTileDepth<Real>);
    for (int64_t row = blocks.begin(first + index); row < blocks.end(first + index); ++row) {
      this->row(row).Leave(layer_, product_terms, vertex_terms);
    }
  }));
  const TiledTerms<Real> products[] = {
      {.blocks = std::span(product_terms_).first(count), .out = iterate_.product},
      {.blocks = std::span(vertex_terms_).first(count), .out = iterate_.vertex_product}};
  SPARSEFW_RETURN_IF_ERROR(
      AddTiledProducts<Real>(*iterate_.layer, blocks, first, std::span(products), context_));
  return context_.ForEach(end - first, [&](int64_t index) {
    for (int64_t row = blocks.begin(first + index); row < blocks.end(first + index); ++row) {
      this->row(row).StoreMask(layer_);
    }
  });
}

template <typename Real>
absl::Status ScreenedEpoch<Real>::End(int64_t iteration) {
  const RowBlocks& blocks = iterate_.blocks;
  for (int64_t first = 0, end = 0; first < blocks.count(); first = end) {
    int64_t terms = 0;
    do {
      for (int64_t row = blocks.begin(end); row < blocks.end(end); ++row) {
        terms += this->row(row).lanes();
      }
      ++end;
    } while (end < blocks.count() && terms < kGroupTerms);
    SPARSEFW_RETURN_IF_ERROR(LeaveBlocks(first, end));
  }
  Adapt(iteration);
  running_ = false;
  return absl::OkStatus();
}

// The next epoch's length, radii and windows.
template <typename Real>
void ScreenedEpoch<Real>::Adapt(int64_t iteration) {
  const double shrink = static_cast<double>(begin_) / static_cast<double>(iteration);
  int64_t restarts = 0;
  for (int64_t row = 0; row < iterate_.layer->rows; ++row) {
    RowPlan<Real>& plan = this->plan(row);
    restarts += plan.restarts;
    if (plan.restarts > 0) continue;
    plan.radius = kRadiusRoom * shrink * std::sqrt(this->row(row).largest_moved());
    if (budget_by_row()) plan.AdaptWindow(shrink);
  }
  if (iterate_.groups.whole_matrix && iteration >= end_) shared_.AdaptWindow(shrink);
  counts_.iterations += iteration - begin_;
  counts_.active_share += static_cast<double>(iteration - begin_) * ShareNow();
  if (iteration < end_) return;
  if (static_cast<double>(restarts) <= kFewRestarts * static_cast<double>(iterate_.layer->rows)) {
    length_ = std::min(kLongestEpoch, 2 * length_);
  }
}

template class ScreenedEpoch<float>;
template class ScreenedEpoch<double>;

}  // namespace sparsefw::cpu
