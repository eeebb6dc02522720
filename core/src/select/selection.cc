#include "core/src/select/selection.h"

#include <algorithm>

#include "core/src/linalg/finite.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/select/ordered_key.h"
#include "core/src/select/top_select.h"

namespace sparsefw {
namespace {

// Calls visit(col, key) for the candidates in columns [first, last) of a row.
template <typename Visit>
void ForEachCandidate(ConstMatrixView scores, const Mask* candidates, int64_t row, int64_t first,
                      int64_t last, const Visit& visit) {
  const float* values = scores.row<float>(row);
  for (int64_t col = first; col < last; ++col) {
    if (candidates == nullptr || candidates->Get(row, col)) visit(col, OrderedKey(values[col]));
  }
}

}  // namespace

Mask KeepTop(ConstMatrixView scores, const Mask* candidates, const Groups& groups) {
  const RowBlocks blocks{scores.rows(), RowGrain(scores.cols())};
  Mask kept(scores.rows(), scores.cols());
  if (groups.whole_matrix) {
    const auto visit = [&](int64_t row, const auto& sink) {
      ForEachCandidate(scores, candidates, row, 0, scores.cols(), sink);
    };
    const auto take = [&](int64_t row, int64_t col) { kept.Set(row, col, true); };
    TakeTop({blocks, /*key_bits=*/32, groups.capacity}, visit, take);
    return kept;
  }
  ParallelFor(blocks.rows, blocks.rows_per_block, [&](int64_t begin, int64_t end) {
    std::vector<Candidate<uint32_t>> group;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t first = 0; first < scores.cols(); first += groups.group_cols) {
        group.clear();
        ForEachCandidate(scores, candidates, row, first, first + groups.group_cols,
                         [&](int64_t col, uint32_t key) {
                           group.push_back({key, static_cast<uint32_t>(col)});
                         });
        SelectBest(groups.capacity, group);
        for (const auto& selected : group) kept.Set(row, selected.col, true);
      }
    }
  });
  return kept;
}

template <typename Real>
void MarkLowest(const Real* scores, int64_t size, int64_t count,
                std::vector<Candidate<KeyOf<Real>>>& scratch, uint8_t* marks) {
  scratch.clear();
  for (int64_t i = 0; i < size; ++i) {
    scratch.push_back({OrderedKey(scores[i]), static_cast<uint32_t>(i)});
  }
  SelectBest(size - count, scratch);
  std::fill_n(marks, size, uint8_t{1});
  for (const auto& kept : scratch) marks[kept.col] = 0;
}

template <typename Real>
void MarkLowestOfMatrix(const Matrix<Real>& scores, int64_t width, int64_t count,
                        Matrix<uint8_t>& marks) {
  const RowBlocks blocks{scores.rows(), RowGrain(width)};
  ParallelFor(blocks.rows, blocks.rows_per_block, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) std::fill_n(marks.row(row), width, uint8_t{1});
  });
  const auto visit = [&](int64_t row, const auto& sink) {
    for (int64_t col = 0; col < width; ++col) sink(col, OrderedKey(scores(row, col)));
  };
  const auto take = [&](int64_t row, int64_t col) { marks(row, col) = 0; };
  constexpr int kKeyBits = 8 * static_cast<int>(sizeof(Real));
  TakeTop({blocks, kKeyBits, scores.rows() * width - count}, visit, take);
}

template void MarkLowest<float>(const float*, int64_t, int64_t, std::vector<Candidate<uint32_t>>&,
                                uint8_t*);
template void MarkLowest<double>(const double*, int64_t, int64_t, std::vector<Candidate<uint64_t>>&,
                                 uint8_t*);
template void MarkLowestOfMatrix<float>(const Matrix<float>&, int64_t, int64_t, Matrix<uint8_t>&);
template void MarkLowestOfMatrix<double>(const Matrix<double>&, int64_t, int64_t, Matrix<uint8_t>&);

}  // namespace sparsefw
