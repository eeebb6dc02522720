#include "core/src/cpu/row_selector.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "core/src/cpu/score_window.h"
#include "core/src/cpu/vertex_selector.h"

namespace sparsefw::cpu {
namespace {

// One budget for the row.
template <typename Real>
class WholeRowSelector final : public RowSelector<Real> {
 public:
  explicit WholeRowSelector(Iterate<Real>& iterate)
      : iterate_(iterate), guesses_(static_cast<size_t>(iterate.layer.rows)) {
    for (int64_t row = 0; row < iterate.layer.rows; ++row) {
      free_.push_back(iterate.groups.capacity -
                      CountBits(iterate.fixed.row(row), iterate.layer.words));
    }
  }

  double Select(int64_t row, Real step, RowScratch<Real>& scratch) override {
    ScoreWindow<Real>& guess = guesses_[static_cast<size_t>(row)];
    uint64_t* vertex = iterate_.vertex.row(row);
    const int64_t words = iterate_.layer.words;
    double inner = UpdateAndScan(iterate_.Row(row), step, guess.low(), guess.high(), vertex,
                                 scratch.bits.data());
    const int64_t free = free_[static_cast<size_t>(row)];
    const int64_t above = CountBits(vertex, words);
    scratch.candidates.clear();
    for (int64_t word = 0; word < words; ++word) {
      ForEachBit(scratch.bits.data()[word], word, [&](int64_t col) {
        scratch.candidates.push_back({ScoreAt(row, col), static_cast<uint32_t>(col)});
      });
    }
    const int64_t inside = std::ssize(scratch.candidates);
    // Nothing positive lies below a window that begins at 0.
    const bool all = guess.low() == 0 && above + inside <= free;
    if (above > free || (above + inside < free && !all)) return SelectAnew(row, scratch);
    const int64_t count = std::min(free - above, inside);
    const Real last = KeepTop(count, scratch.candidates);
    guess.Update(all ? 0 : (count > 0 ? last : guess.high()), true);
    const Real* weights = iterate_.layer.weights.row(row);
    const Real* product = iterate_.product.row(row);
    for (const ScoredColumn<Real>& candidate : scratch.candidates) {
      iterate_.vertex.Set(row, candidate.col);
      inner -=
          static_cast<double>(weights[candidate.col]) * static_cast<double>(product[candidate.col]);
    }
    return inner;
  }

 private:
  // The score, rounded as the kernels round it.
  Real ScoreAt(int64_t row, int64_t col) const {
    return iterate_.layer.weights(row, col) * iterate_.product(row, col);
  }

  // The guess missed.
  double SelectAnew(int64_t row, RowScratch<Real>& scratch) {
    const int64_t free = free_[static_cast<size_t>(row)];
    std::fill_n(iterate_.vertex.row(row), iterate_.layer.words, 0);
    scratch.candidates.clear();
    for (int64_t col = 0; col < iterate_.layer.cols; ++col) {
      const Real score = ScoreAt(row, col);
      if (score > 0 && !iterate_.fixed.Get(row, col)) {
        scratch.candidates.push_back({score, static_cast<uint32_t>(col)});
      }
    }
    const bool full = std::ssize(scratch.candidates) >= free;
    const Real last = KeepTop(free, scratch.candidates);
    guesses_[static_cast<size_t>(row)].Update(full && free > 0 ? last : 0, false);
    for (const ScoredColumn<Real>& candidate : scratch.candidates) {
      iterate_.vertex.Set(row, candidate.col);
    }
    return VertexInner(iterate_, row, scratch.bits.data());
  }

  Iterate<Real>& iterate_;
  std::vector<int64_t> free_;               // capacity left by the fixed set, of each row
  std::vector<ScoreWindow<Real>> guesses_;  // of each row
};

// A budget for every run of a few columns.
template <typename Real>
class GroupSelector final : public RowSelector<Real> {
 public:
  explicit GroupSelector(Iterate<Real>& iterate) : iterate_(iterate) {}

  double Select(int64_t row, Real step, RowScratch<Real>& scratch) override {
    const std::optional<double> inner =
        UpdateAndSelect(iterate_.Row(row), step, iterate_.groups.group_cols,
                        static_cast<Real>(iterate_.groups.capacity), iterate_.vertex.row(row));
    if (inner.has_value()) return *inner;
    UpdateAndScore(iterate_.Row(row), step, scratch.scores.data());
    const RowGroups groups = {.cols = iterate_.layer.cols,
                              .group_cols = iterate_.groups.group_cols,
                              .capacity = iterate_.groups.capacity,
                              .fixed = iterate_.fixed.row(row)};
    SelectInGroups(groups, scratch.scores.data(), iterate_.vertex.row(row));
    return VertexInner(iterate_, row, scratch.bits.data());
  }

 private:
  Iterate<Real>& iterate_;
};

template <typename Real>
class SelectorByRows final : public VertexSelector<Real> {
 public:
  SelectorByRows(const Iterate<Real>& iterate, RowSelector<Real>& rows)
      : blocks_(iterate.blocks),
        words_(iterate.layer.words),
        rows_(rows),
        inner_(static_cast<size_t>(iterate.blocks.count())) {}

  void Scan(int64_t block, Real step) override {
    RowScratch<Real> scratch(words_);
    double sum = 0;
    for (int64_t row = blocks_.begin(block); row < blocks_.end(block); ++row) {
      sum += rows_.Select(row, step, scratch);
    }
    inner_[static_cast<size_t>(block)] = sum;
  }

  absl::StatusOr<double> Finish() override {
    return std::accumulate(inner_.begin(), inner_.end(), 0.0);
  }

 private:
  const RowBlocks blocks_;
  const int64_t words_;
  RowSelector<Real>& rows_;
  std::vector<double> inner_;  // of each block
};

}  // namespace

template <typename Real>
std::unique_ptr<RowSelector<Real>> MakeRowSelector(Iterate<Real>& iterate) {
  if (iterate.groups.whole_matrix) return nullptr;
  if (iterate.groups.groups_per_row == 1) return std::make_unique<WholeRowSelector<Real>>(iterate);
  return std::make_unique<GroupSelector<Real>>(iterate);
}

template <typename Real>
std::unique_ptr<VertexSelector<Real>> MakeSelectorByRows(const Iterate<Real>& iterate,
                                                         RowSelector<Real>& rows) {
  return std::make_unique<SelectorByRows<Real>>(iterate, rows);
}

template <typename Real>
double VertexInner(const Iterate<Real>& iterate, int64_t row, uint64_t* scratch) {
  const uint64_t* fixed = iterate.fixed.row(row);
  const uint64_t* vertex = iterate.vertex.row(row);
  std::transform(fixed, fixed + iterate.layer.words, vertex, scratch, std::bit_or<>());
  return MaskedDot(iterate.layer.words, iterate.layer.weights.row(row), iterate.product.row(row),
                   scratch);
}

template std::unique_ptr<RowSelector<float>> MakeRowSelector(Iterate<float>&);
template std::unique_ptr<RowSelector<double>> MakeRowSelector(Iterate<double>&);
template std::unique_ptr<VertexSelector<float>> MakeSelectorByRows(const Iterate<float>&,
                                                                   RowSelector<float>&);
template std::unique_ptr<VertexSelector<double>> MakeSelectorByRows(const Iterate<double>&,
                                                                    RowSelector<double>&);
template double VertexInner(const Iterate<float>&, int64_t, uint64_t*);
template double VertexInner(const Iterate<double>&, int64_t, uint64_t*);

}  // namespace sparsefw::cpu
