#include "core/src/cpu/iteration/relaxed_mask.h"

namespace sparsefw::cpu {
namespace {

// P_t is at most 1/c_t, and x about as large: far from float32's range.
constexpr double kLeastDecay = 0x1.0p-60;

}  // namespace

template <typename Real>
RelaxedMask<Real>::RelaxedMask(const BitRows& start, int64_t rows, int64_t cols)
    : entries_(rows, cols), weights_(static_cast<size_t>(rows)) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < start.words(); ++word) {
      ForEachBit(start.row(row)[word], word, [&](int64_t col) { entries_(row, col) = 1; });
    }
  }
}

template <typename Real>
void RelaxedMask<Real>::Advance(double eta, int64_t row, const uint64_t* vertex) {
  Weights& weights = weights_[static_cast<size_t>(row)];
  weights.decay *= 1 - eta;
  // eta = 1 forgets everything: M_{t+1} = V_t, and P would be infinite.
  if (weights.decay == 0) {
    std::fill_n(entries_.row(row), entries_.cols(), Real{0});
    weights = {.decay = 1, .vertex_sum = 1};
    return;
  }
  weights.vertex_sum += eta / weights.decay;
  if (weights.decay < kLeastDecay) Fold(row, vertex);
}

template <typename Real>
void RelaxedMask<Real>::Fold(int64_t row, const uint64_t* vertex) {
  for (int64_t col = 0; col < entries_.cols(); ++col) {
    entries_(row, col) = Value(row, col, ((vertex[col >> 6] >> (col & 63)) & 1) != 0);
  }
  weights_[static_cast<size_t>(row)] = {};
}

template class RelaxedMask<float>;
template class RelaxedMask<double>;

}  // namespace sparsefw::cpu
