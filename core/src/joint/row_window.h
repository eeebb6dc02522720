// Which columns of a row the joint search's tableau holds.
#ifndef SPARSEFW_CORE_SRC_JOINT_ROW_WINDOW_H_
#define SPARSEFW_CORE_SRC_JOINT_ROW_WINDOW_H_

#include <cstdint>
#include <vector>

#include "sparsefw/pattern.h"

namespace sparsefw {

// A row before it is divided. Pointers: [cols].
struct WindowRow {
  double excluded = 0;             // share of all columns, of those outside
  const float* bounds = nullptr;   // what a column outside would gain at least
  const uint8_t* kept = nullptr;   // 1 where kept
  const uint8_t* fixed = nullptr;  // 1 where it must stay; a subset of kept
};

// Columns in ascending order.
struct RowWindow {
  std::vector<int32_t> fixed;     // stay
  std::vector<int32_t> kept;      // may leave
  std::vector<int32_t> outside;   // may enter
  std::vector<int32_t> excluded;  // may be admitted later
};

// Excluded are a share of all columns, of those outside the ones that would gain least, of equal
// ones the lower columns. Columns outside in groups that nothing can leave are nowhere.
// Overwrites `window`. Cost: linear in cols.
void DivideColumns(const WindowRow& row, int64_t cols, const Groups& groups, RowWindow& window);

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_JOINT_ROW_WINDOW_H_
