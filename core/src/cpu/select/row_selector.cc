#include "core/src/cpu/select/row_selector.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "core/src/cpu/select/vertex_selector.h"
#include "core/src/frank_wolfe/score_window.h"

namespace sparsefw::cpu {
namespace {

// One budget for the row.
template <typename Real>
class WholeRowSelector final : public RowSelector<Real> {
 public:
  explicit WholeRowSelector(const Iterate<Real>& iterate)
      : guesses_(static_cast<size_t>(iterate.layer->rows)) {
    for (int64_t row = 0; row < iterate.layer->rows; ++row) {
      free_.push_back(iterate.groups.capacity -
                      CountBits(iterate.fixed.row(row), iterate.layer->words));
    }
  }

  std::span<std::byte> guesses() override { return std::as_writable_bytes(std::span(guesses_)); }

  double Select(int64_t row, const RowOperands<Real>& operands, Real step,
                RowScratch<Real>& scratch, uint64_t* vertex) override {
    ScoreWindow<Real>& guess = guesses_[static_cast<size_t>(row)];
    const int64_t free = free_[static_cast<size_t>(row)];
    double inner =
        UpdateAndScan(operands, step, guess.low(), guess.high(), vertex, scratch.bits.data());
    const int64_t above = CountBits(vertex, operands.words);
    scratch.candidates.clear();
    for (int64_t word = 0; word < operands.words; ++word) {
      ForEachBit(scratch.bits.data()[word], word, [&](int64_t col) {
        scratch.candidates.push_back({ScoreAt(operands, col), static_cast<uint32_t>(col)});
      });
    }
    const int64_t inside = std::ssize(scratch.candidates);
    // Nothing positive lies below a window that begins at 0.
    const bool all = guess.low() == 0 && above + inside <= free;
    if (above > free || (above + inside < free && !all)) {
      guess.Move(SelectAnew(operands, free, scratch, vertex), false);
      return VertexInner(operands, vertex, scratch.bits.data());
    }
    const int64_t count = std::min(free - above, inside);
    const Real last = KeepTop(count, scratch.candidates);
    guess.Move(all ? 0 : (count > 0 ? last : guess.high()), true);
    for (const Candidate<Real>& candidate : scratch.candidates) {
      SetBit(vertex, candidate.col);
      inner -= static_cast<double>(operands.weights[candidate.col]) *
               static_cast<double>(operands.product[candidate.col]);
    }
    return inner;
  }

 private:
  // The score, rounded as the kernels round it.
  static Real ScoreAt(const RowOperands<Real>& operands, int64_t col) {
    return operands.weights[col] * operands.product[col];
  }
  static void SetBit(uint64_t* words, int64_t col) { words[col >> 6] |= uint64_t{1} << (col & 63); }

  // The guess missed. Returns the threshold, 0 when every positive score was taken.
  static Real SelectAnew(const RowOperands<Real>& operands, int64_t free, RowScratch<Real>& scratch,
                         uint64_t* vertex) {
    std::fill_n(vertex, operands.words, 0);
    scratch.candidates.clear();
    for (int64_t word = 0; word < operands.words; ++word) {
      ForEachBit(~operands.fixed[word], word, [&](int64_t col) {
        const Real score = ScoreAt(operands, col);
        if (score > 0) scratch.candidates.push_back({score, static_cast<uint32_t>(col)});
      });
    }
    const bool full = std::ssize(scratch.candidates) >= free;
    const Real last = KeepTop(free, scratch.candidates);
    for (const Candidate<Real>& candidate : scratch.candidates) SetBit(vertex, candidate.col);
    return full && free > 0 ? last : 0;
  }

  std::vector<int64_t> free_;               // capacity left by the fixed set, of each row
  std::vector<ScoreWindow<Real>> guesses_;  // of each row
};

// A budget for every run of a few columns.
template <typename Real>
class GroupSelector final : public RowSelector<Real> {
 public:
  explicit GroupSelector(const Iterate<Real>& iterate)
      : groups_(iterate.groups), cols_(iterate.layer->cols) {}

  std::span<std::byte> guesses() override { return {}; }

  double Select(int64_t /*row*/, const RowOperands<Real>& operands, Real step,
                RowScratch<Real>& scratch, uint64_t* vertex) override {
    const std::optional<double> inner = UpdateAndSelect(
        operands, step, groups_.group_cols, static_cast<Real>(groups_.capacity), vertex);
    if (inner.has_value()) return *inner;
    UpdateAndScore(operands, step, scratch.scores.data());
    const RowGroups groups = {.cols = cols_,
                              .group_cols = groups_.group_cols,
                              .capacity = groups_.capacity,
                              .fixed = operands.fixed};
    SelectInGroups(groups, scratch.scores.data(), vertex);
    return VertexInner(operands, vertex, scratch.bits.data());
  }

 private:
  const Groups groups_;
  const int64_t cols_;
};

template <typename Real>
class SelectorByRows final : public VertexSelector<Real> {
 public:
  SelectorByRows(Iterate<Real>& iterate, RowSelector<Real>& rows)
      : iterate_(iterate), rows_(rows), inner_(static_cast<size_t>(iterate.blocks.count())) {}

  void Scan(int64_t block, Real step) override {
    RowScratch<Real> scratch(iterate_.layer->words);
    double sum = 0;
    for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
      sum += rows_.Select(row, iterate_.Row(row), step, scratch, iterate_.vertex.row(row));
    }
    inner_[static_cast<size_t>(block)] = sum;
  }

  absl::StatusOr<double> Finish() override {
    return std::accumulate(inner_.begin(), inner_.end(), 0.0);
  }

  std::span<std::byte> guesses() override { return rows_.guesses(); }

 private:
  Iterate<Real>& iterate_;
  RowSelector<Real>& rows_;
  std::vector<double> inner_;  // of each block
};

}  // namespace

template <typename Real>
std::unique_ptr<RowSelector<Real>> MakeRowSelector(const Iterate<Real>& iterate) {
  if (iterate.groups.whole_matrix) return nullptr;
  if (iterate.groups.groups_per_row == 1) return std::make_unique<WholeRowSelector<Real>>(iterate);
  return std::make_unique<GroupSelector<Real>>(iterate);
}

template <typename Real>
std::unique_ptr<VertexSelector<Real>> MakeSelectorByRows(Iterate<Real>& iterate,
                                                         RowSelector<Real>& rows) {
  return std::make_unique<SelectorByRows<Real>>(iterate, rows);
}

template <typename Real>
double VertexInner(const RowOperands<Real>& row, const uint64_t* vertex, uint64_t* scratch) {
  std::transform(row.fixed, row.fixed + row.words, vertex, scratch, std::bit_or<>());
  return MaskedDot(row.words, row.weights, row.product, scratch);
}

template std::unique_ptr<RowSelector<float>> MakeRowSelector(const Iterate<float>&);
template std::unique_ptr<RowSelector<double>> MakeRowSelector(const Iterate<double>&);
template std::unique_ptr<VertexSelector<float>> MakeSelectorByRows(Iterate<float>&,
                                                                   RowSelector<float>&);
template std::unique_ptr<VertexSelector<double>> MakeSelectorByRows(Iterate<double>&,
                                                                    RowSelector<double>&);
template double VertexInner(const RowOperands<float>&, const uint64_t*, uint64_t*);
template double VertexInner(const RowOperands<double>&, const uint64_t*, uint64_t*);

}  // namespace sparsefw::cpu
