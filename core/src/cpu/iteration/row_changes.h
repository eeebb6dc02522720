// The coordinates in which two vertices of a row differ, as lists: the values there lie scattered
// over rows that no cache holds, so they are fetched while the row before is at work.
#ifndef SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_CHANGES_H_
#define SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_CHANGES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "core/src/select/bit_rows.h"

namespace sparsefw::cpu {

struct ColumnChange {
  uint32_t col : 31;
  uint32_t entered : 1;  // the vertex; else left
};

// One list of changes; keeps its memory from row to row. Not thread-safe.
class ChangeList {
 public:
  // Calls fetch(col) for every change.
  template <typename Fetch>
  void Fill(const uint64_t* from, const uint64_t* to, int64_t words, const Fetch& fetch) {
    const auto most = static_cast<size_t>(words) * 64;
    if (size_ < most) changes_ = std::make_unique_for_overwrite<ColumnChange[]>(most);
    size_ = std::max(size_, most);
    ColumnChange* out = changes_.get();
    for (int64_t word = 0; word < words; ++word) {
      const uint64_t entered = to[word];
      ForEachBit(from[word] ^ entered, word, [&](int64_t col) {
        *out++ = {static_cast<uint32_t>(col) & 0x7fffffffu,
                  static_cast<uint32_t>(entered >> (col & 63)) & 1u};
        fetch(col);
      });
    }
    count_ = static_cast<size_t>(out - changes_.get());
  }

  std::span<const ColumnChange> get() const { return {changes_.get(), count_}; }

 private:
  std::unique_ptr<ColumnChange[]> changes_;  // not zeroed: rows are short, and there are many
  size_t size_ = 0;
  size_t count_ = 0;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_ITERATION_ROW_CHANGES_H_
