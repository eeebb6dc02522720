// What a selection selects from. A source is passed to kernels by value and has
//
//   kKeyBits                       the bits of its keys
//   Stopped()                      nothing is to be done
//   Prepare(row, col)              called once for every coordinate, before Key
//   Key(row, col)                  0: not to be selected (the fixed set)
//   Part(row, col, selected)       what is summed up over all coordinates
#ifndef SPARSEFW_CORE_SRC_CUDA_SOURCES_CUH_
#define SPARSEFW_CORE_SRC_CUDA_SOURCES_CUH_

#include "core/src/cuda/iterate.h"
#include "core/src/cuda/reduce.cuh"

namespace sparsefw::cuda {

// E_{t+1} = E_t + eta (U_t - E_t) and what M needs, at one coordinate.
template <typename Real>
__device__ void MoveEntry(const Iterate<Real>& it, int64_t row, int64_t col) {
  const int64_t i = row * it.stride + col;
  const Real eta = static_cast<Real>(it.state->step_size);
  const bool rewrite = it.state->rewrite != Rewrite::kNone;  // before the store below
  const Real product = it.product[i];
  it.product[i] = product + eta * (it.vertex_product[i] - product);
  if (rewrite) {
    const bool in_vertex = BitOf(it.previous + row * it.words(), col);
    it.entries[i] =
        static_cast<Real>(RewrittenEntry(*it.state, static_cast<double>(it.entries[i]), in_vertex));
  }
}

// Scores W.E for the next vertex; the parts add up to a = <D(V), E>.
template <typename Real>
struct ScoreSource {
  static constexpr int kKeyBits = kScoreKeyBits<Real>;

  Iterate<Real> it;
  bool moves = false;

  __device__ bool Stopped() const { return it.state->stopped != 0; }
  __device__ void Prepare(int64_t row, int64_t col) const {
    if (moves) MoveEntry(it, row, col);
  }
  __device__ bool Fixed(int64_t row, int64_t col) const {
    return BitOf(it.fixed + row * it.words(), col);
  }
  __device__ uint64_t Key(int64_t row, int64_t col) const {
    const int64_t i = row * it.stride + col;
    return Fixed(row, col) ? 0 : ScoreKey(static_cast<Real>(it.weights[i] * it.product[i]));
  }
  __device__ double Part(int64_t row, int64_t col, bool selected) const {
    if (selected || Fixed(row, col)) return 0;
    const int64_t i = row * it.stride + col;
    return static_cast<double>(it.weights[i]) * static_cast<double>(it.product[i]);
  }
};

// Entries of M_t for rounding; the parts add up to ||M_t - round(M_t)||_1.
template <typename Real>
struct RoundSource {
  static constexpr int kKeyBits = kRoundKeyBits;

  Iterate<Real> it;
  const float* saliency = nullptr;

  __device__ bool Stopped() const { return false; }
  __device__ void Prepare(int64_t, int64_t) const {}
  __device__ bool Fixed(int64_t row, int64_t col) const {
    return BitOf(it.fixed + row * it.words(), col);
  }
  __device__ double Entry(int64_t row, int64_t col) const {
    const double value = LazyValue(static_cast<double>(it.entries[row * it.stride + col]),
                                   BitOf(it.previous + row * it.words(), col), it.state->decay,
                                   it.state->vertex_sum);
    return static_cast<double>(static_cast<Real>(value));
  }
  __device__ uint64_t Key(int64_t row, int64_t col) const {
    return Fixed(row, col) ? 0 : RoundKey(Entry(row, col), saliency[row * it.stride + col]);
  }
  __device__ double Part(int64_t row, int64_t col, bool selected) const {
    if (Fixed(row, col)) return 0;
    const double entry = Entry(row, col);
    return selected ? 1 - entry : entry;
  }
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SOURCES_CUH_
