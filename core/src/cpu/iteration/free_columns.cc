#include "core/src/cpu/iteration/free_columns.h"

#include <algorithm>
#include <utility>

#include "core/src/cpu/linalg/kernels.h"
#include "core/src/cpu/linalg/panel_kernels.h"

namespace sparsefw::cpu {
namespace {

// Compress writes up to one vector beyond the end.
constexpr int64_t kSlack = 64;

// Values for copied rows of G: all of them, where they need no more.
template <typename Real>
int64_t CopiedValues(int64_t cols, int64_t copy_bytes) {
  const int64_t stride = (cols + 63) / 64 * 64;
  const int64_t limit = copy_bytes / static_cast<int64_t>(sizeof(Real)) + stride;
  return std::min(limit, cols * stride) + kSlack;
}

int64_t Differing(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  int64_t count = 0;
  for (size_t word = 0; word < a.size(); ++word) count += PopCount(a[word] ^ b[word]);
  return count;
}

}  // namespace

template <typename Real>
FreeColumns<Real>::FreeColumns(Iterate<Real>& iterate, RelaxedMask<Real>& relaxed,
                               int64_t copy_bytes)
    : iterate_(iterate),
      relaxed_(relaxed),
      keep_(static_cast<size_t>(iterate.layer->words)),
      weights_(1, iterate.layer->stride() + kSlack),
      product_(1, iterate.layer->stride() + kSlack),
      vertex_product_(1, iterate.layer->stride() + kSlack),
      older_product_(1, iterate.layer->stride() + kSlack),
      fixed_(static_cast<size_t>(iterate.layer->words)),
      previous_(static_cast<size_t>(iterate.layer->words)),
      older_(static_cast<size_t>(iterate.layer->words)),
      vertex_(static_cast<size_t>(iterate.layer->words)),
      gram_(1, CopiedValues<Real>(iterate.layer->cols, copy_bytes)) {}

template <typename Real>
void FreeColumns<Real>::Load(int64_t row) {
  row_ = row;
  const int64_t words = iterate_.layer->words;
  const uint64_t* fixed = iterate_.fixed.row(row);
  cols_.clear();
  for (int64_t word = 0; word < words; ++word) {
    const int64_t cols = std::min<int64_t>(64, iterate_.layer->cols - word * 64);
    keep_[static_cast<size_t>(word)] = ~fixed[word] & (~uint64_t{0} >> (64 - cols));
    ForEachBit(keep_[static_cast<size_t>(word)], word,
               [&](int64_t col) { cols_.push_back(static_cast<uint32_t>(col)); });
  }
  const int64_t count = std::ssize(cols_);
  words_ = (count + 63) / 64;
  const auto gather = [&](const Real* from, Matrix<Real>& to) {
    Compress(words, from, 64, keep_.data(), to.data());
    std::fill(to.data() + count, to.data() + words_ * 64, Real{0});
  };
  gather(iterate_.layer->weights.row(row), weights_);
  gather(iterate_.product.row(row), product_);
  gather(iterate_.vertex_product.row(row), vertex_product_);
  gather(iterate_.older.product.row(row), older_product_);
  std::fill(previous_.begin(), previous_.end(), 0);
  std::fill(older_.begin(), older_.end(), 0);
  std::fill(vertex_.begin(), vertex_.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t col = cols_[static_cast<size_t>(i)];
    const auto word = static_cast<size_t>(i >> 6);
    previous_[word] |= uint64_t{iterate_.previous.Get(row, col)} << (i & 63);
    older_[word] |= uint64_t{iterate_.older.bits.Get(row, col)} << (i & 63);
    vertex_[word] |= uint64_t{iterate_.vertex.Get(row, col)} << (i & 63);
  }
  slots_.assign(static_cast<size_t>(count), kNone);
  slots_used_ = 0;
}

template <typename Real>
double FreeColumns<Real>::ApplyVertex() {
  const int64_t from_previous = Differing(previous_, vertex_);
  toggled_ = 0;
  if (from_previous == 0) return 0;
  CollectToggles();
  const bool back = Differing(older_, vertex_) < from_previous;
  CollectTerms(back ? older_ : previous_);
  if (back) {
    std::swap(vertex_product_, older_product_);
  } else {
    std::copy_n(vertex_product_.data(), stride(), older_product_.data());
  }
  std::swap(older_, previous_);
  previous_ = vertex_;
  double change = Inner();
  const int64_t slots = (gram_.size() - kSlack) / std::max<int64_t>(64, stride());
  delta_.Reset(kNone, kNone);  // one tile
  delta_.BeginRow();
  for (const Term<Real>& term : terms_) {
    uint32_t& slot = slots_[term.col];
    if (slot == kNone && slots_used_ == slots) {
      AddProduct();
      std::fill(slots_.begin(), slots_.end(), kNone);
      slots_used_ = 0;
    }
    if (slot == kNone) CopyGramRow(term.col, slot = slots_used_++);
    delta_.Add(term.factor, slot);
  }
  AddProduct();
  change += Inner();
  double& last = iterate_.older.change[static_cast<size_t>(row_)];
  last = back ? change - last : change;
  return last;
}

template <typename Real>
void FreeColumns<Real>::CollectToggles() {
  uint64_t* previous = iterate_.previous.row(row_);
  for (int64_t word = 0; word < words_; ++word) {
    const uint64_t to = vertex_[static_cast<size_t>(word)];
    ForEachBit(previous_[static_cast<size_t>(word)] ^ to, word, [&](int64_t index) {
      const int64_t col = cols_[static_cast<size_t>(index)];
      relaxed_.Toggle(row_, col, ((to >> (index & 63)) & 1) != 0);
      previous[col >> 6] ^= uint64_t{1} << (col & 63);
      toggled_ += weights_.data()[index] != 0;
    });
  }
}

template <typename Real>
void FreeColumns<Real>::CollectTerms(const std::vector<uint64_t>& from) {
  terms_.clear();
  for (int64_t word = 0; word < words_; ++word) {
    const uint64_t to = vertex_[static_cast<size_t>(word)];
    ForEachBit(from[static_cast<size_t>(word)] ^ to, word, [&](int64_t index) {
      const Real weight = weights_.data()[index];
      if (weight == 0) return;
      const bool entered = ((to >> (index & 63)) & 1) != 0;
      terms_.push_back({entered ? -weight : weight, static_cast<uint32_t>(index)});
    });
  }
}

// <delta, U> of the row.
template <typename Real>
double FreeColumns<Real>::Inner() const {
  double sum = 0;
  for (const Term<Real>& term : terms_) {
    sum += static_cast<double>(term.factor) * static_cast<double>(vertex_product_.data()[term.col]);
  }
  return sum;
}

// U += delta G for the terms collected, which are then done with.
template <typename Real>
void FreeColumns<Real>::AddProduct() {
  delta_.EndRow();
  AddSparseProduct({.a = delta_,
                    .tile = 0,
                    .gram = {.data = gram_.data(),
                             .depth = slots_used_,
                             .count = words_,
                             .row_stride = stride(),
                             .panel_stride = kPanelCols},
                    .panels = {0, words_},
                    .out = vertex_product_.data(),
                    .out_stride = stride()});
  delta_.Reset(kNone, kNone);
  delta_.BeginRow();
}

template <typename Real>
void FreeColumns<Real>::CopyGramRow(int64_t index, int64_t slot) {
  const PanelView<Real> gram = iterate_.layer->gram.view();
  const int64_t row = cols_[static_cast<size_t>(index)];
  Real* copy = gram_.data() + slot * stride();
  Compress(gram.count, gram.data + row * kPanelCols, gram.panel_stride, keep_.data(), copy);
  std::fill(copy + std::ssize(cols_), copy + stride(), Real{0});
}

template <typename Real>
double FreeColumns<Real>::Advance(double step, RowSelector<Real>& selector,
                                  RowScratch<Real>& scratch) {
  relaxed_.Advance(step, row_, iterate_.previous.row(row_));
  const RowOperands<Real> operands = {words_, weights_.data(), vertex_product_.data(),
                                      fixed_.data(), product_.data()};
  return selector.Select(row_, operands, static_cast<Real>(step), scratch, vertex_.data());
}

template <typename Real>
void FreeColumns<Real>::Store() {
  Real* product = iterate_.product.row(row_);
  Real* vertex_product = iterate_.vertex_product.row(row_);
  Real* older_product = iterate_.older.product.row(row_);
  for (int64_t i = 0; i < std::ssize(cols_); ++i) {
    const int64_t col = cols_[static_cast<size_t>(i)];
    product[col] = product_.data()[i];
    vertex_product[col] = vertex_product_.data()[i];
    older_product[col] = older_product_.data()[i];
  }
  SpreadBits(vertex_, iterate_.vertex.row(row_));
  SpreadBits(older_, iterate_.older.bits.row(row_));
}

template <typename Real>
void FreeColumns<Real>::SpreadBits(const std::vector<uint64_t>& from, uint64_t* to) const {
  std::fill_n(to, iterate_.layer->words, 0);
  for (int64_t i = 0; i < std::ssize(cols_); ++i) {
    const int64_t col = cols_[static_cast<size_t>(i)];
    to[col >> 6] |= ((from[static_cast<size_t>(i >> 6)] >> (i & 63)) & 1) << (col & 63);
  }
}

template <typename Real>
int64_t FreeColumns<Real>::Bytes(int64_t cols) {
  constexpr int64_t kSize = sizeof(Real);
  // W, E, U twice; bits, columns, slots, terms.
  const int64_t row = (cols + 64) * (5 * kSize + 8 + 4 * static_cast<int64_t>(sizeof(Term<Real>)));
  return CopiedValues<Real>(cols, kCopyBytes) * kSize + row;
}

template class FreeColumns<float>;
template class FreeColumns<double>;

}  // namespace sparsefw::cpu
