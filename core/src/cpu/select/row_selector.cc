#include "core/src/cpu/select/row_selector.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "core/src/cpu/linalg/kernels.h"

namespace sparsefw::cpu {
namespace {

// The score, rounded as the kernels round it.
template <typename Real>
Real ScoreAt(const RowOperands<Real>& operands, int64_t col) {
  return operands.weights[col] * operands.product[col];
}

// Where the guess missed.
template <typename Real>
void CollectPositive(const RowOperands<Real>& operands, WindowScores<Real>& scores) {
  scores.above = 0;
  scores.inside.clear();
  for (int64_t word = 0; word < operands.words; ++word) {
    ForEachBit(~operands.fixed[word], word, [&](int64_t col) {
      const Real score = ScoreAt(operands, col);
      if (score > 0) scores.inside.push_back({score, 0, static_cast<uint32_t>(col)});
    });
  }
}

}  // namespace

template <typename Real>
RowSelector<Real>::RowSelector(Iterate<Real>& iterate)
    : iterate_(iterate), inner_(static_cast<size_t>(iterate.blocks.count())) {
  if (iterate.groups.groups_per_row > 1) return;
  for (int64_t row = 0; row < iterate.layer->rows; ++row) {
    free_.push_back(iterate.groups.capacity -
                    CountBits(iterate.fixed.row(row), iterate.layer->words));
  }
  guesses_.resize(free_.size());
}

template <typename Real>
void RowSelector<Real>::Scan(int64_t block, Real step) {
  RowScratch<Real> scratch(iterate_.layer->words);
  double sum = 0;
  for (int64_t row = iterate_.blocks.begin(block); row < iterate_.blocks.end(block); ++row) {
    sum += Select(row, step, scratch);
  }
  inner_[static_cast<size_t>(block)] = sum;
}

template <typename Real>
absl::StatusOr<double> RowSelector<Real>::Finish() {
  return std::accumulate(inner_.begin(), inner_.end(), 0.0);
}

template <typename Real>
double RowSelector<Real>::Select(int64_t row, Real step, RowScratch<Real>& scratch) {
  if (!free_.empty()) return SelectInRow(row, step, scratch);
  const RowOperands<Real> operands = iterate_.Row(row);
  uint64_t* const vertex = iterate_.vertex.row(row);
  const std::optional<double> inner = UpdateAndSelectGroups(
      operands, step, iterate_.groups, iterate_.layer->cols, scratch.row_scores.data(), vertex);
  return inner ? *inner : VertexInner(operands, operands.product, vertex, scratch.bits.data());
}

template <typename Real>
double RowSelector<Real>::SelectInRow(int64_t row, Real step, RowScratch<Real>& scratch) {
  const RowOperands<Real> operands = iterate_.Row(row);
  uint64_t* const vertex = iterate_.vertex.row(row);
  ScoreWindow<Real>& guess = guesses_[static_cast<size_t>(row)];
  const int64_t free = free_[static_cast<size_t>(row)];
  WindowScores<Real>& scores = scratch.scores;
  double inner = Kernels<Real>().update_and_scan(operands, step, guess.low(), guess.high(), vertex,
                                                 scratch.bits.data());
  scores.above = CountBits(vertex, operands.words);
  scores.inside.clear();
  for (int64_t word = 0; word < operands.words; ++word) {
    ForEachBit(scratch.bits.data()[word], word, [&](int64_t col) {
      scores.inside.push_back({ScoreAt(operands, col), 0, static_cast<uint32_t>(col)});
    });
  }
  const std::span own(&scratch, 1);
  auto threshold = FindThreshold(own, free, guess.low(), guess.high(), scratch.merged);
  const bool found = threshold.has_value();
  if (!found) {
    std::fill_n(vertex, operands.words, 0);
    CollectPositive(operands, scores);
    threshold = FindThreshold(own, free, Real{0}, Real{0}, scratch.merged);
  }
  guess.Move(threshold->value, found);
  for (const MatrixCandidate<Real>& candidate : scores.inside) {
    if (!threshold->Selects(candidate)) continue;
    SetBit(vertex, candidate.col);
    inner -= static_cast<double>(operands.weights[candidate.col]) *
             static_cast<double>(operands.product[candidate.col]);
  }
  return found ? inner : VertexInner(operands, operands.product, vertex, scratch.bits.data());
}

template <typename Real>
std::optional<double> UpdateAndSelectGroups(const RowOperands<Real>& operands, Real step,
                                            const Groups& groups, int64_t cols, Real* scores,
                                            uint64_t* vertex) {
  const std::optional<double> inner = Kernels<Real>().update_and_select(
      operands, step, groups.group_cols, static_cast<Real>(groups.capacity), vertex);
  if (inner) return inner;
  Kernels<Real>().update_and_score(operands, step, scores);
  const RowGroups row = {.cols = cols,
                         .group_cols = groups.group_cols,
                         .capacity = groups.capacity,
                         .fixed = operands.fixed};
  SelectInGroups(row, scores, vertex);
  return std::nullopt;
}

template <typename Real>
double VertexInner(const RowOperands<Real>& row, const Real* product, const uint64_t* vertex,
                   uint64_t* scratch) {
  std::transform(row.fixed, row.fixed + row.words, vertex, scratch, std::bit_or<>());
  return Kernels<Real>().masked_dot(row.words, row.weights, product, scratch);
}

template class RowSelector<float>;
template class RowSelector<double>;
template std::optional<double> UpdateAndSelectGroups(const RowOperands<float>&, float,
                                                     const Groups&, int64_t, float*, uint64_t*);
template std::optional<double> UpdateAndSelectGroups(const RowOperands<double>&, double,
                                                     const Groups&, int64_t, double*, uint64_t*);
template double VertexInner(const RowOperands<float>&, const float*, const uint64_t*, uint64_t*);
template double VertexInner(const RowOperands<double>&, const double*, const uint64_t*, uint64_t*);

}  // namespace sparsefw::cpu
