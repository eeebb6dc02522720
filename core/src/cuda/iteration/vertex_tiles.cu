// The vertex update with tiles of G in shared memory: U += Delta G where many
// coordinates toggle.
//
// A block takes kTileRows rows and kTileCols columns of U, whose sums stay in
// registers, 4 columns of 16 rows a thread, and goes through G in tiles of kDepth
// rows. Every row of G so serves kTileRows rows of U: docs/adr/0015 has why.
//
// Toggles are listed beforehand, once for all columns: a slot for every
// kWarpRows rows and kDepth columns of the vertex, in the order in which a warp
// adds it up. The order of every sum is fixed.
#include "core/src/cuda/iteration/frank_wolfe_kernels.h"
#include "core/src/cuda/iteration/toggles.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kTileThreads = 512;
constexpr int kTileWarps = kTileThreads / 32;
constexpr int kTileRows = kTileWarps * kWarpRows;
constexpr int kTileCols = 128;
constexpr int kDepth = kSlotColumns;
constexpr int kTileLoads = kDepth / kTileWarps;  // rows of a tile that a warp reads
constexpr int kRowsAhead = 4;                    // rows of U that a thread loads at a time
constexpr unsigned kLaneMask = 0xFFFFFFFFU;
constexpr unsigned kNoRow = static_cast<unsigned>(kWarpRows) * kDepth;  // ends a list

struct alignas(16) Four {
  float v[4];
};

// In shared memory.
struct Tiles {
  Four gram[2][kDepth][kTileCols / 4];
  ToggleEntry lists[kTileWarps][32 + 1];
};

// Columns of a row of `matrix` from the lane's on; 0 outside.
__device__ Four LoadFour(const float* matrix, int64_t row, int64_t rows, int64_t col,
                         int64_t stride) {
  if (row >= rows || col >= stride) return Four{};
  return *reinterpret_cast<const Four*>(matrix + row * stride + col);
}

// The toggles of a slot as a lane sees them: lane l has word l % 2 of row l / 2.
struct SlotToggles {
  BitWord bits = 0;
  int before = 0;  // those of the lanes before
  int total = 0;   // of the slot
};

__device__ SlotToggles FindToggles(const IterateView<float>& it, int64_t group, int64_t slot) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = group * kWarpRows + lane / 2;
  const int64_t word = slot * 2 + lane % 2;
  SlotToggles found;
  if (row < it.rows && word < it.words()) {
    found.bits = it.previous[row * it.words() + word] ^ it.vertex[row * it.words() + word];
  }
  int sum = __popc(found.bits);
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kLaneMask, sum, static_cast<unsigned>(step));
    if (lane >= step) sum += other;
  }
  found.before = sum - __popc(found.bits);
  found.total = __shfl_sync(kLaneMask, sum, 31);
  return found;
}

// Entries `first` to `first + count` of a slot's list.
__device__ void WriteEntries(const IterateView<float>& it, int64_t group, int64_t slot,
                             const SlotToggles& found, int first, int count, ToggleEntry* list) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = group * kWarpRows + lane / 2;
  int position = found.before - first;
  for (BitWord bits = found.bits; bits != 0; bits &= bits - 1, ++position) {
    if (position < 0 || position >= count) continue;
    const int col = lane % 2 * 32 + __ffs(static_cast<int>(bits)) - 1;
    list[position] = {DeltaOf(it, row, slot * kDepth + col),
                      static_cast<unsigned>(lane / 2 * kDepth + col)};
  }
}

// A warp for every slot.
__global__ void __launch_bounds__(kBlockThreads)
    ListKernel(IterateView<float> it, ToggleSlots slots, int64_t groups) {
  if (it.state->stopped != 0) return;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x) / 32;
  if (warp >= groups * slots.slots) return;
  const int64_t group = warp / slots.slots;
  const int64_t slot = warp % slots.slots;
  const SlotToggles found = FindToggles(it, group, slot);
  if (threadIdx.x % 32 == 0) slots.counts[warp] = found.total;
  WriteEntries(it, group, slot, found, 0, kSlotEntries, slots.entries + warp * kSlotEntries);
}

// 32 entries of a list, one in every lane; what is behind its end adds nothing.
__device__ ToggleEntry LoadEntry(const ToggleSlots& slots, int64_t index, int first, int total) {
  const int k = first + static_cast<int>(threadIdx.x) % 32;
  if (k >= total || k >= kSlotEntries) return {0, kNoRow};
  return slots.entries[index * kSlotEntries + k];
}

// sums += the listed rows of the tile. A list is in the order of its rows, so
// that sums are registers.
__device__ void AddListed(const ToggleEntry* list, const Four (*gram)[kTileCols / 4],
                          Four (&sums)[kWarpRows]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int k = 0;
  ToggleEntry entry = list[0];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    while (entry.place / kDepth == static_cast<unsigned>(r)) {
      const Four row = gram[entry.place % kDepth][lane];
      const float delta = entry.delta;
      entry = list[++k];
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[r].v[q] += delta * row.v[q];
    }
  }
}

// Adds the entries of a slot beyond its first 32.
__device__ void AddRest(const IterateView<float>& it, const ToggleSlots& slots, int64_t group,
                        int64_t slot, int total, ToggleEntry* list,
                        const Four (*gram)[kTileCols / 4], Four (&sums)[kWarpRows]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t index = group * slots.slots + slot;
  for (int first = 32; first < total; first += 32) {
    __syncwarp();
    list[lane] = LoadEntry(slots, index, first, total);
    __syncwarp();
    if (first >= kSlotEntries) {  // did not fit the slot: listed again
      const SlotToggles found = FindToggles(it, group, slot);
      WriteEntries(it, group, slot, found, first, 32, list);
      __syncwarp();
    }
    AddListed(list, gram, sums);
  }
}

// U += sums; returns what b changes by: <Delta, U_{t-1} + U_t>. A few rows at a
// time are loaded before the first of them is stored: for all the compiler knows
// a store changes what the next load reads, so that the loads would wait for it.
__device__ double AddToRows(const IterateView<float>& it, int64_t first, int64_t col,
                            const Four (&sums)[kWarpRows]) {
  double change = 0;
  if (col >= it.stride) return 0;
#pragma unroll
  for (int begin = 0; begin < kWarpRows; begin += kRowsAhead) {
    const int64_t row = first + begin;
    Four before[kRowsAhead] = {};
    BitWord vertex[kRowsAhead] = {};
    BitWord toggled[kRowsAhead] = {};
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      if (row + r >= it.rows) continue;
      before[r] = LoadFour(it.vertex_product, row + r, it.rows, col, it.stride);
      const int64_t word = (row + r) * it.words() + col / 32;
      vertex[r] = it.vertex[word] >> (col % 32);
      toggled[r] = ((it.previous[word] >> (col % 32)) ^ vertex[r]) & 15U;
    }
    Four weights[kRowsAhead] = {};
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      if (toggled[r] != 0) weights[r] = LoadFour(it.weights, row + r, it.rows, col, it.stride);
    }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      if (row + r >= it.rows) break;
      Four after = before[r];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        after.v[q] += sums[begin + r].v[q];
        if ((toggled[r] >> q & 1U) == 0) continue;
        const float weight = weights[r].v[q];
        const float delta = (vertex[r] >> q & 1U) != 0 ? -weight : weight;
        change += static_cast<double>(delta) *
                  (static_cast<double>(before[r].v[q]) + static_cast<double>(after.v[q]));
      }
      *reinterpret_cast<Four*>(it.vertex_product + (row + r) * it.stride + col) = after;
    }
  }
  return change;
}

__global__ void __launch_bounds__(kTileThreads, 1)
    TileKernel(IterateView<float> it, ToggleSlots slots) {
  if (it.state->stopped != 0) return;
  Tiles& shared = *DynamicShared<Tiles>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileRows + warp * kWarpRows;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kTileCols + lane * 4;
  const int64_t group = first / kWarpRows;
  const bool works = first < it.rows;
  ToggleEntry* list = shared.lists[warp];
  if (lane == 0) list[32] = {0, kNoRow};

  Four sums[kWarpRows] = {};
  Four gram[kTileLoads];
  for (int q = 0; q < kTileLoads; ++q) {
    gram[q] = LoadFour(it.gram, warp + q * kTileWarps, it.cols, col, it.stride);
  }
  int total = works ? slots.counts[group * slots.slots] : 0;
  ToggleEntry entry = LoadEntry(slots, group * slots.slots, 0, total);
  for (int64_t slot = 0; slot < slots.slots; ++slot) {
    auto& tile = shared.gram[slot % 2];
    for (int q = 0; q < kTileLoads; ++q) tile[warp + q * kTileWarps][lane] = gram[q];
    __syncwarp();
    list[lane] = entry;
    const int now = total;
    // One barrier a tile: the other tile has been done with since the last one.
    __syncthreads();
    if (slot + 1 < slots.slots) {
      for (int q = 0; q < kTileLoads; ++q) {
        gram[q] =
            LoadFour(it.gram, (slot + 1) * kDepth + warp + q * kTileWarps, it.cols, col, it.stride);
      }
      total = works ? slots.counts[group * slots.slots + slot + 1] : 0;
      entry = LoadEntry(slots, group * slots.slots + slot + 1, 0, total);
    }
    if (now == 0) continue;
    AddListed(list, tile, sums);
    if (now > 32) AddRest(it, slots, group, slot, now, list, tile, sums);
  }
  double change = works ? AddToRows(it, first, col, sums) : 0;
  change = BlockSum<kTileThreads>(change);
  if (threadIdx.x == 0) {
    it.partial[static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = change;
  }
}

int64_t RoundUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

}  // namespace

CudaError LaunchTiles(const IterateView<float>& it, const ToggleSlots& slots, int64_t* blocks,
                      cudaStream_t stream) {
  const int64_t groups = RowGroups(it.rows);
  const int64_t warps = groups * slots.slots;
  SPARSEFW_RETURN_IF_CUDA_ERROR(Launch(ListKernel, {.blocks_x = RoundUp(warps, kBlockThreads / 32)},
                                       stream, it, slots, groups));
  const LaunchShape shape = {.blocks_x = RoundUp(it.rows, kTileRows),
                             .blocks_y = RoundUp(it.stride, kTileCols),
                             .threads = kTileThreads,
                             .shared_bytes = sizeof(Tiles)};
  *blocks = shape.blocks_x * shape.blocks_y;
  return Launch(TileKernel, shape, stream, it, slots);
}

}  // namespace sparsefw::cuda
