// State of swap refinement: the mask being improved and its E = D G.
#ifndef SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_STATE_H_
#define SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/src/cpu/swaps/swap_kernels.h"
#include "core/src/linalg/scaled_layer.h"
#include "core/src/parallel/parallel_context.h"
#include "core/src/select/bit_rows.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::cpu {

// Says when to stop; once it has, it always does. Thread-safe.
class SwapBudget {
 public:
  SwapBudget(const ParallelContext& context, const std::function<bool()>& out_of_time)
      : context_(context), out_of_time_(out_of_time) {}

  bool Spent() {
    if (!spent_ && (context_.stopped() || (out_of_time_ && out_of_time_()))) spent_ = true;
    return spent_;
  }

 private:
  const ParallelContext& context_;
  const std::function<bool()>& out_of_time_;
  std::atomic<bool> spent_{false};
};

struct SwapTally {
  int64_t swaps = 0;
  double loss_change = 0;  // of the scaled layer
};

// E is in float64 although W and G may be in float32: the changes that decide
// near the end are 10^-7 of a row's loss.
//
// Distinct rows may be changed from distinct threads.
template <typename Real>
struct SwapState {
  ScaledLayer<Real> layer;
  Groups groups;
  std::vector<uint64_t> columns;  // every column of the matrix: swap_kernels.h
  Matrix<double> diagonal;        // [1, stride]: G_jj
  // max over j of |G_pj| / sqrt(G_jj), infinite where a zero divides: bounds
  // what a partner of p can gain by being in the same row, G PSD or not.
  std::vector<double> reach;
  BitRows kept;
  BitRows locked;
  Matrix<double> product;         // [rows, stride]: E
  std::vector<double> tolerance;  // of every row: core/src/frank_wolfe/swap_tolerance.h

  SwapOperands<Real> Row(int64_t row) {
    return {layer.words,     layer.weights.row(row), diagonal.data(), kept.row(row),
            locked.row(row), columns.data(),         product.row(row)};
  }

  double Weight(int64_t row, int64_t col) const {
    return static_cast<double>(layer.weights(row, col));
  }

  // p goes out of and q comes into one row.
  void SwapWithinRow(int64_t row, int64_t p, int64_t q) {
    kept.Flip(row, p);
    kept.Flip(row, q);
    KernelsOfSwaps<Real>().add_two_rows(layer.words, Weight(row, p), layer.gram.row(p),
                                        -Weight(row, q), layer.gram.row(q), product.row(row));
  }
  // One weight of a row goes out, or comes in.
  void Move(int64_t row, int64_t col) {
    const double factor = kept.Get(row, col) ? Weight(row, col) : -Weight(row, col);
    kept.Flip(row, col);
    KernelsOfSwaps<Real>().add_two_rows(layer.words, factor, layer.gram.row(col), 0,
                                        layer.gram.row(col), product.row(row));
  }
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SWAPS_SWAP_STATE_H_
