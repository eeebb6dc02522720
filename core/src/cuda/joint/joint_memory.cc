#include <algorithm>

#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/linalg/padded_rows.h"

namespace sparsefw::cuda {
namespace {

constexpr int64_t kAlignment = 256;

class Shelf {
 public:
  explicit Shelf(unsigned char* memory) : memory_(memory) {}

  template <typename T>
  void Place(int64_t count, T*& array) {
    if (memory_ != nullptr) array = reinterpret_cast<T*>(memory_ + used_);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  int64_t used() const { return used_; }

 private:
  unsigned char* const memory_;  // null: counts only
  int64_t used_ = 0;
};

template <typename Real>
int64_t BytesOf(const JointSizes& sizes, int64_t cols, int64_t count) {
  JointBatch<Real> batch = {.count = count, .stride = StrideOf(cols), .sizes = sizes};
  return LayOut(nullptr, batch);
}

// At least the sizes of every window: F and K, and K and O, are together at most all columns.
JointSizes LargestSizes(int64_t cols) {
  JointSizes sizes = JointSizes::For(0, cols, kPanelRows);
  sizes.fixed = kPanelRows;
  return sizes;
}

// The widest window that defaults give: 2:4 with alpha 0.4 and a quarter excluded. So no preset has
// smaller batches than kBatchBytes allows.
JointSizes WidestUsualSizes(int64_t cols) {
  return JointSizes::For(cols / 5, 3 * cols / 10, cols / 4);
}

}  // namespace

template <typename Real>
int64_t LayOut(unsigned char* memory, JointBatch<Real>& batch) {
  const JointSizes& sizes = batch.sizes;
  const int64_t count = batch.count;
  const int64_t spans = count * sizes.span;
  const int64_t strides = count * batch.stride;
  Shelf shelf(memory);
  shelf.Place(count * sizes.eliminated() * sizes.width(), batch.factor);
  shelf.Place(sizes.positions * spans, batch.tableau);
  shelf.Place(kPendingSweeps * spans, batch.pending);
  shelf.Place(kPendingSweeps * count, batch.pending_factors);
  shelf.Place(count * sizes.positions * kPanelRows, batch.entering);
  shelf.Place(count * sizes.width(), batch.known);
  for (Real** array : {&batch.targets, &batch.diagonals, &batch.floors, &batch.column}) {
    shelf.Place(spans, *array);
  }
  shelf.Place(spans, batch.gains);
  shelf.Place(strides, batch.solution);
  shelf.Place(strides, batch.rounded);
  shelf.Place(strides, batch.bounds);
  shelf.Place(count * sizes.width(), batch.columns);
  shelf.Place(strides, batch.places);
  shelf.Place(count * kRoomOfRow, batch.admitted);
  shelf.Place(spans, batch.inside);
  shelf.Place(strides, batch.kept);
  shelf.Place(count, batch.rows);
  shelf.Place(1, batch.counter);
  return shelf.used();
}

template <typename Real>
int64_t BatchBytes(int64_t rows, int64_t cols) {
  const int64_t usual = BytesOf<Real>(WidestUsualSizes(cols), cols, std::min(rows, kMostBatchRows));
  return std::max(BytesOf<Real>(LargestSizes(cols), cols, 1), std::min(kBatchBytes, usual));
}

template <typename Real>
int64_t RowsThatFit(const JointSizes& sizes, int64_t cols, int64_t bytes) {
  int64_t count = std::min(kMostBatchRows, bytes / BytesOf<Real>(sizes, cols, 1) + 1);
  while (count > 1 && BytesOf<Real>(sizes, cols, count) > bytes) --count;
  return count;
}

#define SPARSEFW_INSTANTIATE(Real)                               \
  template int64_t LayOut(unsigned char*, JointBatch<Real>&);    \
  template int64_t BatchBytes<Real>(int64_t rows, int64_t cols); \
  template int64_t RowsThatFit<Real>(const JointSizes&, int64_t, int64_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
