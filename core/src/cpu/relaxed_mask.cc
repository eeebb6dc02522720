#include "core/src/cpu/relaxed_mask.h"

#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

constexpr int64_t kRowsOfBlock = 16;
// P_t is at most 1/c_t, and x about as large: far from float32's range.
constexpr double kLeastDecay = 0x1.0p-60;

}  // namespace

template <typename Real>
RelaxedMask<Real>::RelaxedMask(const BitRows& start, int64_t rows, int64_t cols)
    : entries_(rows, cols) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < start.words(); ++word) {
      ForEachBit(start.row(row)[word], word, [&](int64_t col) { entries_(row, col) = 1; });
    }
  }
}

template <typename Real>
absl::Status RelaxedMask<Real>::Advance(double eta, const BitRows& vertex, Workers& workers) {
  decay_ *= 1 - eta;
  // eta = 1 forgets everything: M_{t+1} = V_t, and P would be infinite.
  if (decay_ == 0) {
    vertex_sum_ = 1;
    const RowBlocks blocks{entries_.rows(), kRowsOfBlock};
    SPARSEFW_RETURN_IF_ERROR(workers.ForEach(blocks.count(), [&](int64_t block) {
      for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
        std::fill_n(entries_.row(row), entries_.cols(), Real{0});
      }
    }));
    decay_ = 1;
    return absl::OkStatus();
  }
  vertex_sum_ += eta / decay_;
  return decay_ < kLeastDecay ? Fold(vertex, workers) : absl::OkStatus();
}

template <typename Real>
absl::Status RelaxedMask<Real>::Fold(const BitRows& vertex, Workers& workers) {
  const RowBlocks blocks{entries_.rows(), kRowsOfBlock};
  SPARSEFW_RETURN_IF_ERROR(workers.ForEach(blocks.count(), [&](int64_t block) {
    for (int64_t row = blocks.begin(block); row < blocks.end(block); ++row) {
      for (int64_t col = 0; col < entries_.cols(); ++col) {
        entries_(row, col) = Value(row, col, vertex.Get(row, col));
      }
    }
  }));
  decay_ = 1;
  vertex_sum_ = 0;
  return absl::OkStatus();
}

template class RelaxedMask<float>;
template class RelaxedMask<double>;

}  // namespace sparsefw::cpu
