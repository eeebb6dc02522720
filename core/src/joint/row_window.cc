#include "core/src/joint/row_window.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace sparsefw {

void DivideColumns(const WindowRow& row, int64_t cols, const Groups& groups, RowWindow& window) {
  const auto size = static_cast<size_t>(cols);
  std::vector<int32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  const auto low = static_cast<int64_t>(row.excluded * static_cast<double>(cols));
  std::nth_element(order.begin(), order.begin() + low, order.end(), [&](int32_t a, int32_t b) {
    return std::tuple(row.kept[a], row.bounds[a], a) < std::tuple(row.kept[b], row.bounds[b], b);
  });
  std::vector<uint8_t> excluded(size);
  for (int64_t i = 0; i < low; ++i) {
    excluded[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
  }
  for (auto* columns : {&window.fixed, &window.kept, &window.outside, &window.excluded}) {
    columns->clear();
  }
  for (int64_t first = 0; first < cols; first += groups.group_cols) {
    bool movable = groups.whole_matrix;
    for (int64_t j = first; j < first + groups.group_cols; ++j) {
      movable |= row.kept[j] != 0 && row.fixed[j] == 0;
    }
    for (int64_t j = first; j < first + groups.group_cols; ++j) {
      const auto column = static_cast<int32_t>(j);
      if (row.fixed[j] != 0) {
        window.fixed.push_back(column);
      } else if (row.kept[j] != 0) {
        window.kept.push_back(column);
      } else if (movable) {
        (excluded[static_cast<size_t>(j)] == 0 ? window.outside : window.excluded)
            .push_back(column);
      }
    }
  }
}

}  // namespace sparsefw
