// Lists of the coordinates that toggle, for the vertex update in tiles.
#ifndef SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_SLOTS_H_
#define SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_SLOTS_H_

#include <cstdint>

namespace sparsefw::cuda {

// A slot holds what toggles in kWarpRows rows and kSlotColumns columns, in
// row-major order, as far as it fits: an eighth of them. The rest is looked for
// when it is needed.
inline constexpr int kWarpRows = 16;
inline constexpr int kSlotColumns = 64;
inline constexpr int kSlotEntries = 128;

struct alignas(8) ToggleEntry {
  float delta;     // what D(V) changes by
  unsigned place;  // row in the slot times kSlotColumns, plus the column
};

// Views of device memory; slots of a group of rows stand together.
struct ToggleSlots {
  int64_t slots = 0;               // of a group: stride / kSlotColumns
  int32_t* counts = nullptr;       // [groups * slots]: also of what did not fit
  ToggleEntry* entries = nullptr;  // [groups * slots * kSlotEntries]
};

inline int64_t RowGroups(int64_t rows) { return (rows + kWarpRows - 1) / kWarpRows; }
inline int64_t SlotsOf(int64_t rows, int64_t stride) {
  return RowGroups(rows) * (stride / kSlotColumns);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_ITERATION_TOGGLE_SLOTS_H_
