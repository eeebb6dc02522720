// Exact selection: the order of all selections, and selection inside one row or a group of its
// columns.
#ifndef SPARSEFW_CORE_SRC_SELECT_GROUP_SELECT_H_
#define SPARSEFW_CORE_SRC_SELECT_GROUP_SELECT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sparsefw {

// A coordinate of a group and what it is selected by: a key (ordered_key.h) or a
// score that is not NaN.
template <typename Key>
struct Candidate {
  Key key;
  uint32_t col;
};

// The same of a matrix.
template <typename Key>
struct MatrixCandidate {
  Key key;
  uint32_t row;
  uint32_t col;
};

// The order of every selection: the higher key; of equal keys the higher row-major index.
template <typename Key>
bool Better(const Candidate<Key>& a, const Candidate<Key>& b) {
  return a.key != b.key ? a.key > b.key : a.col > b.col;
}
template <typename Key>
bool Better(const MatrixCandidate<Key>& a, const MatrixCandidate<Key>& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.row != b.row ? a.row > b.row : a.col > b.col;
}

// The same for sorting: inlined, which the name of a function is not.
struct BetterFirst {
  template <typename Item>
  bool operator()(const Item& a, const Item& b) const {
    return Better(a, b);
  }
};

// Drops all but the `count` best; those that are left are in no order.
template <typename Key>
void SelectBest(int64_t count, std::vector<Candidate<Key>>& candidates) {
  if (count >= std::ssize(candidates)) return;
  if (count > 0) {
    std::nth_element(candidates.begin(), candidates.begin() + count - 1, candidates.end(),
                     BetterFirst());
  }
  candidates.resize(static_cast<size_t>(count > 0 ? count : 0));
}

struct RowGroups {
  int64_t cols = 0;
  int64_t group_cols = 0;  // divides cols
  int64_t capacity = 0;    // of a group, fixed coordinates included
  const uint64_t* fixed = nullptr;
};

// Sets in `vertex` the coordinates that every group selects of its free ones:
// the largest positive scores, of equal scores the higher column.
template <typename Real>
void SelectInGroups(const RowGroups& groups, const Real* scores, uint64_t* vertex);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_SELECT_GROUP_SELECT_H_
