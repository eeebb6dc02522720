// Which columns of a row an epoch is about: those whose vertex bit can change
// while the row moves by no more than its radius and, where a threshold
// decides, that stays in its window. docs/numerics.md, Screening, has the proof.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/frank_wolfe/screening.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

template <typename Real>
struct Window {
  Real low = 0;
  Real high = 0;
  bool Holds(Real threshold) const { return low <= threshold && threshold <= high; }
};

// Bits of a row in full width.
struct ChosenColumns {
  std::vector<uint64_t> active;
  std::vector<uint64_t> above;  // inactive, and in the vertex
};

// Distinct rows concurrently.
template <typename Real>
class ColumnChoice {
 public:
  explicit ColumnChoice(Iterate<Real>& iterate)
      : iterate_(iterate), norms_(1, iterate.layer->stride()) {
    const PanelView<Real> gram = iterate.layer->gram.view();
    for (int64_t col = 0; col < iterate.layer->cols; ++col) {
      const Real norm = gram.panel(col / kPanelCols)[col * kPanelCols + col % kPanelCols];
      norms_(0, col) = std::sqrt(std::max(norm, Real{0}));
    }
  }

  // At E_t and V_{t-1} of the row; columns that must toggle now are active too.
  // n:m patterns: whole groups, fixed coordinates included; no window.
  void Choose(int64_t row, double radius, const Window<Real>& window, ChosenColumns& out) const {
    const int64_t words = iterate_.layer->words;
    out.active.assign(static_cast<size_t>(words), 0);
    out.above.assign(static_cast<size_t>(words), 0);
    if (!iterate_.groups.whole_matrix && iterate_.groups.groups_per_row > 1) {
      ChooseGroups(row, radius, out);
      return;
    }
    KernelsOfScreening<Real>().screen_row(iterate_.Row(row),
                                          {.norms = norms_.data(),
                                           .radius = static_cast<Real>(radius * kRadiusMargin),
                                           .low = window.low,
                                           .high = window.high},
                                          out.active.data(), out.above.data());
    const uint64_t* const previous = iterate_.previous.row(row);
    const int64_t last = iterate_.layer->cols & 63;
    for (int64_t word = 0; word < words; ++word) {
      const auto i = static_cast<size_t>(word);
      const uint64_t inside =
          word + 1 == words && last != 0 ? ~uint64_t{0} >> (64 - last) : ~uint64_t{0};
      out.active[i] = (out.active[i] | (out.above[i] ^ previous[word])) & inside;
      out.above[i] &= ~out.active[i];
    }
  }

  // The threshold of the row's vertex: the least score in it, 0 where it has
  // fewer than `free` coordinates.
  Real Threshold(int64_t row, int64_t free) const {
    const int64_t words = iterate_.layer->words;
    const uint64_t* const vertex = iterate_.vertex.row(row);
    if (CountBits(vertex, words) < free || free == 0) return 0;
    return KernelsOfScreening<Real>().least_score(words, iterate_.layer->weights.row(row),
                                                  iterate_.product.row(row), vertex);
  }

 private:
  void ChooseGroups(int64_t row, double radius, ChosenColumns& out) const {
    const int64_t group = iterate_.groups.group_cols;
    for (int64_t first = 0; first < iterate_.layer->cols; first += group) {
      if (GroupStays(row, first, radius, out)) continue;
      for (int64_t col = first; col < first + group; ++col) SetBit(out.active.data(), col);
    }
  }

  // Every selected coordinate stays above every other one and above 0; where fewer
  // than the capacity are positive, no other becomes so.
  bool GroupStays(int64_t row, int64_t first, double radius, ChosenColumns& out) const {
    const Real* const weights = iterate_.layer->weights.row(row);
    const Real* const product = iterate_.product.row(row);
    const auto reach = static_cast<Real>(radius * kRadiusMargin);
    int64_t free = iterate_.groups.capacity;
    int64_t selected = 0;
    Real least = std::numeric_limits<Real>::max();
    Real most = std::numeric_limits<Real>::lowest();
    for (int64_t col = first; col < first + iterate_.groups.group_cols; ++col) {
      if (iterate_.fixed.Get(row, col)) {
        --free;
        continue;
      }
      const Real score = weights[col] * product[col];
      const Real spread = std::abs(weights[col]) * norms_(0, col) * reach;
      if (iterate_.previous.Get(row, col)) {
        ++selected;
        least = std::min(least, score - spread);
      } else {
        most = std::max(most, score + spread);
      }
    }
    if (selected > free) return false;
    if (selected > 0 && !(least > 0)) return false;
    if (selected == free ? (free > 0 && !(least > most)) : most > 0) return false;
    for (int64_t col = first; col < first + iterate_.groups.group_cols; ++col) {
      if (iterate_.previous.Get(row, col)) SetBit(out.above.data(), col);
    }
    return true;
  }

  Iterate<Real>& iterate_;
  Matrix<Real> norms_;  // [1, stride]: sqrt(G_jj)
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_COLUMN_CHOICE_H_
