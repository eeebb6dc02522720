#include "core/src/cpu/screen/active_row.h"

#include <algorithm>
#include <cmath>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/frank_wolfe/lazy_mask.h"

namespace sparsefw::cpu {
namespace {

// <D_0, E_0> of a row, M lazily.
template <typename Real>
double StartLoss(const ScreenedLayer<Real>& layer, int64_t row) {
  const RowOperands<Real> operands = layer.iterate.Row(row);
  const uint64_t* const vertex = layer.iterate.previous.row(row);
  double sum = 0;
  for (int64_t word = 0; word < operands.words; ++word) {
    const int64_t cols = std::min<int64_t>(64, layer.iterate.layer->cols - word * 64);
    ForEachBit(~operands.fixed[word] & (~uint64_t{0} >> (64 - cols)), word, [&](int64_t col) {
      const auto kept = static_cast<double>(layer.relaxed.Value(row, col, GetBit(vertex, col)));
      sum += (1 - kept) * static_cast<double>(operands.weights[col]) *
             static_cast<double>(operands.product[col]);
    });
  }
  return sum;
}

}  // namespace

template <typename Real>
void ActiveRow<Real>::Measure(const ScreenedLayer<Real>& layer, int64_t row) {
  const Iterate<Real>& it = layer.iterate;
  row_ = row;
  const auto inner = [&](const Matrix<Real>& product) {
    return Kernels<Real>().masked_dot(it.layer->words, it.layer->weights.row(row), product.row(row),
                                      it.fixed.row(row), it.previous.row(row));
  };
  state_ = {};
  RowMovement& movement = state_.movement;
  movement.start_loss = StartLoss(layer, row);
  movement.inner_start = movement.start_loss;
  movement.vertex_inner = inner(it.product);
  movement.vertex_start = movement.vertex_inner;
  movement.vertex_loss = inner(it.vertex_product);
}

template <typename Real>
void ActiveRow<Real>::Load(const ScreenedLayer<Real>& layer, int64_t row, const uint64_t* active) {
  const Iterate<Real>& it = layer.iterate;
  row_ = row;
  // Reserves exactly their number: push_back alone would leave room for half as many more.
  const auto count = static_cast<size_t>(CountBits(active, it.layer->words));
  if (cols_.capacity() < count) {
    cols_ = std::vector<uint32_t>();
    offsets_ = std::vector<int32_t>();
    cols_.reserve(count);
    offsets_.reserve(count);
  }
  cols_.clear();
  offsets_.clear();
  const int64_t panel_stride = it.layer->gram.view().panel_stride;
  for (int64_t word = 0; word < it.layer->words; ++word) {
    ForEachBit(active[word], word, [&](int64_t col) {
      cols_.push_back(static_cast<uint32_t>(col));
      offsets_.push_back(static_cast<int32_t>(col / kPanelCols * panel_stride + col % kPanelCols));
    });
  }
  lanes_ = std::ssize(cols_);
  const int64_t words = std::max<int64_t>(1, (lanes_ + 63) / 64);
  if (words != words_ || values_.size() == 0) {
    words_ = words;
    values_ = Matrix<Real>(kValueCount, stride());
    bits_ = Matrix<uint64_t>(kBitCount, words_);
  } else {
    std::fill_n(values_.data(), values_.size(), Real{0});
    std::fill_n(bits_.data(), bits_.size(), uint64_t{0});
  }
  const Real* const weights = it.layer->weights.row(row);
  const Real* const product = it.product.row(row);
  const Real* const vertex_product = it.vertex_product.row(row);
  const Real* const entries = layer.relaxed.row(row);
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    const int64_t from = col(lane);
    values_(kWeights, lane) = weights[from];
    values_(kProduct, lane) = product[from];
    values_(kStartProduct, lane) = product[from];
    values_(kVertexProduct, lane) = vertex_product[from];
    values_(kEntries, lane) = entries[from];
    PutBit(bits_.row(kFixed), lane, it.fixed.Get(row, from));
    PutBit(bits_.row(kPrevious), lane, it.previous.Get(row, from));
    PutBit(bits_.row(kVertex), lane, it.vertex.Get(row, from));
  }
  state_.swapped = 0;
  state_.toggled = 0;
  std::copy_n(bits_.row(kPrevious), words_, bits_.row(kStart));
  // No older vertex is known yet, and none is nearer than the last one.
  std::copy_n(bits_.row(kPrevious), words_, bits_.row(kOlder));
}

template <typename Real>
VertexChange<Real> ActiveRow<Real>::Change(Bit from) const {
  return {groups(), values_.row(kWeights), bits_.row(from), bits_.row(kVertex)};
}

template <typename Real>
void ActiveRow<Real>::Commit() {
  const ChangeSums sums = KernelsOfScreening<Real>().sum_change(
      Change(kPrevious), values_.row(kProduct), values_.row(kStartProduct));
  state_.toggled = sums.changed;
  state_.movement.ToggleVertex(sums.with_a, sums.with_b);
}

template <typename Real>
void ActiveRow<Real>::Apply(const ScreenedLayer<Real>& layer, GramRows<Real>& gram,
                            ToggleScratch<Real>& scratch) {
  vertex_loss_change_ = 0;
  const uint64_t* const vertex = bits_.row(kVertex);
  const int64_t from_previous = CountDifferences(bits_.row(kPrevious), vertex, words_);
  if (from_previous == 0) return;
  const ScreenKernels<Real>& kernels = KernelsOfScreening<Real>();
  const LazyScale scale = layer.relaxed.scales()[static_cast<size_t>(row_)];
  kernels.toggle_entries(Change(kPrevious), static_cast<Real>(scale.vertex_sum),
                         values_.row(kEntries), values_.row(kShift));
  const int64_t from_older = CountDifferences(bits_.row(kOlder), vertex, words_);
  const bool back = from_older < from_previous;
  const int64_t count = back ? from_older : from_previous;
  const VertexChange<Real> change = Change(back ? kOlder : kPrevious);
  gram.MakeRoom(count);
  CollectTerms(layer, change, count, gram, scratch);
  double& last_loss = state_.movement.vertex_loss;
  const double loss =
      (back ? state_.older_loss : last_loss) +
      kernels.add_gram_terms(scratch.terms.data(), count, change,
                             values_.row(back ? oldest() : newest()), values_.row(oldest()));
  vertex_loss_change_ = loss - last_loss;
  state_.older_loss = last_loss;
  last_loss = loss;
  state_.swapped = state_.swapped != 0 ? 0 : 1;
  std::copy_n(bits_.row(kPrevious), words_, bits_.row(kOlder));
  std::copy_n(vertex, words_, bits_.row(kPrevious));
}

// A coordinate that enters the vertex leaves D.
template <typename Real>
void ActiveRow<Real>::CollectTerms(const ScreenedLayer<Real>& layer,
                                   const VertexChange<Real>& change, int64_t count,
                                   GramRows<Real>& gram, ToggleScratch<Real>& scratch) {
  const auto size = static_cast<size_t>(count);
  if (scratch.terms.size() < size) scratch.terms.resize(size);
  scratch.missing.clear();
  GramTerm<Real>* term = scratch.terms.data();
  ForEachDifference(change.before, change.after, words_, [&](int64_t lane) {
    const Real weight = change.weights[lane];
    const Real* const row = gram.Find(lane);
    *term++ = {row, GetBit(change.after, lane) ? -weight : weight};
    if (row == nullptr) [[unlikely]]
      scratch.missing.push_back(static_cast<uint32_t>(lane));
  });
  if (scratch.missing.empty()) return;
  gram.Gather(scratch.missing, cols_, layer.iterate.layer->gram.view(), offsets_);
  auto gathered = scratch.missing.begin();
  for (size_t i = 0; i < size; ++i) {
    GramTerm<Real>& to = scratch.terms[i];
    if (to.row == nullptr) to.row = gram.Find(*gathered++);
  }
}

template <typename Real>
void ActiveRow<Real>::Advance(const ScreenedLayer<Real>& layer, double step) {
  LazyScale old;
  AdvanceScale(layer.relaxed.scales()[static_cast<size_t>(row_)], step, old);
  state_.movement.TakeStep(step);
}

template <typename Real>
bool ActiveRow<Real>::WithinRadius() {
  const double moved =
      state_.movement.moved + MovementNoise<Real>() * std::abs(state_.movement.start_loss);
  state_.largest_moved = std::max(state_.largest_moved, moved);
  return moved <= radius * radius;
}

template <typename Real>
void ActiveRow<Real>::Leave(const ScreenedLayer<Real>& layer, SparseRows<Real>& product_terms,
                            SparseRows<Real>& vertex_terms) {
  Iterate<Real>& it = layer.iterate;
  const double decay = state_.movement.decay;
  KernelsOfScreening<Real>().blend_row(it.layer->words, static_cast<Real>(decay),
                                       it.vertex_product.row(row_), static_cast<Real>(1 - decay),
                                       it.product.row(row_));
  const LazyScale scale = layer.relaxed.scales()[static_cast<size_t>(row_)];
  product_terms.BeginRow();
  vertex_terms.BeginRow();
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    const auto weight = static_cast<double>(values_(kWeights, lane));
    const int start = GetBit(bits_.row(kStart), lane) ? 1 : 0;
    const int change = (GetBit(bits_.row(kPrevious), lane) ? 1 : 0) - start;
    const double kept = static_cast<double>(values_(kShift, lane)) + change * scale.vertex_sum;
    const auto factor = static_cast<Real>(-weight * scale.decay * kept);
    if (factor != 0) product_terms.Add(factor, col(lane));
    if (change != 0 && weight != 0) {
      vertex_terms.Add(static_cast<Real>(-weight * change), col(lane));
    }
  }
  product_terms.EndRow();
  vertex_terms.EndRow();
}

template <typename Real>
void ActiveRow<Real>::StoreMask(const ScreenedLayer<Real>& layer) const {
  Real* const entries = layer.relaxed.row(row_);
  uint64_t* const previous = layer.iterate.previous.row(row_);
  uint64_t* const vertex = layer.iterate.vertex.row(row_);
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    const int64_t to = col(lane);
    entries[to] = values_(kEntries, lane);
    PutBit(previous, to, GetBit(bits_.row(kPrevious), lane));
    PutBit(vertex, to, GetBit(bits_.row(kVertex), lane));
  }
}

template class ActiveRow<float>;
template class ActiveRow<double>;

}  // namespace sparsefw::cpu
