#include "core/src/select/group_select.h"

#include <algorithm>

#include "core/src/select/bit_rows.h"

namespace sparsefw {
namespace {

// Groups of a size known to the compiler, a divisor of 64: a coordinate is
// selected when fewer than `free` others beat it. Quadratic, but without
// branches or moves.
template <int kGroup, typename Real>
void SelectInSmallGroups(const RowGroups& groups, const Real* scores, uint64_t* vertex) {
  for (int64_t word = 0; word < (groups.cols + 63) / 64; ++word) {
    const uint64_t fixed_bits = groups.fixed[word];
    const int64_t cols = std::min<int64_t>(64, groups.cols - word * 64);
    uint64_t selected_bits = 0;
    for (int first = 0; first < cols; first += kGroup) {
      Real score[kGroup];
      auto free = static_cast<int>(groups.capacity);
      for (int i = 0; i < kGroup; ++i) {
        const bool fixed = ((fixed_bits >> (first + i)) & 1) != 0;
        free -= fixed ? 1 : 0;
        score[i] = fixed ? 0 : scores[word * 64 + first + i];
      }
      for (int i = 0; i < kGroup; ++i) {
        int better = 0;
        for (int j = 0; j < i; ++j) better += score[j] > score[i] ? 1 : 0;
        for (int j = i + 1; j < kGroup; ++j) better += score[j] >= score[i] ? 1 : 0;
        const bool selected = score[i] > 0 && better < free;
        selected_bits |= uint64_t{selected} << (first + i);
      }
    }
    vertex[word] = selected_bits;
  }
}

template <typename Real>
void SelectInLargeGroups(const RowGroups& groups, const Real* scores, uint64_t* vertex) {
  std::fill_n(vertex, (groups.cols + 63) / 64, 0);
  std::vector<Candidate<Real>> positive;
  for (int64_t first = 0; first < groups.cols; first += groups.group_cols) {
    positive.clear();
    int64_t free = groups.capacity;
    for (int64_t col = first; col < first + groups.group_cols; ++col) {
      if (GetBit(groups.fixed, col)) {
        --free;
      } else if (scores[col] > 0) {
        positive.push_back({scores[col], static_cast<uint32_t>(col)});
      }
    }
    SelectBest(free, positive);
    for (const Candidate<Real>& selected : positive) SetBit(vertex, selected.col);
  }
}

}  // namespace

template <typename Real>
void SelectInGroups(const RowGroups& groups, const Real* scores, uint64_t* vertex) {
  switch (groups.group_cols) {
    case 2:
      return SelectInSmallGroups<2>(groups, scores, vertex);
    case 4:
      return SelectInSmallGroups<4>(groups, scores, vertex);
    case 8:
      return SelectInSmallGroups<8>(groups, scores, vertex);
    case 16:
      return SelectInSmallGroups<16>(groups, scores, vertex);
    default:
      return SelectInLargeGroups(groups, scores, vertex);
  }
}

template void SelectInGroups(const RowGroups&, const float*, uint64_t*);
template void SelectInGroups(const RowGroups&, const double*, uint64_t*);

}  // namespace sparsefw
