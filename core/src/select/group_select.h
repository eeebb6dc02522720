// Exact selection inside one row.
#ifndef SPARSEFW_CORE_SRC_SELECT_GROUP_SELECT_H_
#define SPARSEFW_CORE_SRC_SELECT_GROUP_SELECT_H_

#include <cstdint>
#include <vector>

namespace sparsefw {

template <typename Real>
struct ScoredColumn {
  Real score;
  uint32_t col;
};

// Keeps the `count` best of `columns` (all, if there are fewer), in ascending
// order of columns: by score, of equal scores the higher column. Returns the
// least score kept, 0 when none is. `columns` comes in ascending order.
template <typename Real>
Real KeepTop(int64_t count, std::vector<ScoredColumn<Real>>& columns);

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
