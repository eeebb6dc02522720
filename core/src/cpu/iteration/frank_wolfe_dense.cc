// U, E and the losses by dense products: at the start, where many coordinates toggle, at
// refreshes and to measure the drift.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "core/src/cpu/iteration/frank_wolfe.h"
#include "core/src/cpu/linalg/gram_product.h"
#include "core/src/cpu/linalg/kernels.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cpu {
namespace {

// A row of D(M) G: its part of the loss, and by how much E_i is off, squared.
struct DenseRow {
  double loss = 0;
  double difference = 0;
  double norm = 0;
};

template <typename Real>
void AddDifference(Real dense, Real moved, DenseRow& row) {
  const auto difference = static_cast<double>(dense - moved);
  row.difference += difference * difference;
  row.norm += static_cast<double>(dense) * static_cast<double>(dense);
}

// Free columns alone: nothing depends on E elsewhere.
template <typename Real>
DenseRow Compare(const RowOperands<Real>& row, Real step, const Real* dense) {
  DenseRow result;
  for (int64_t word = 0; word < row.words; ++word) {
    ForEachBit(~row.fixed[word], word, [&](int64_t col) {
      const Real e = row.product[col];
      AddDifference(dense[col], e + step * (row.vertex_product[col] - e), result);
    });
  }
  return result;
}

// Inside an epoch E stands on the active columns alone.
template <typename Real>
DenseRow Compare(const ActiveRow<Real>& row, const Real* dense) {
  DenseRow result;
  for (int64_t lane = 0; lane < row.lanes(); ++lane) {
    AddDifference(dense[row.col(lane)], row.product()[lane], result);
  }
  return result;
}

}  // namespace

// U and b of the vertex in `previous`.
template <typename Real>
absl::Status FrankWolfe<Real>::RecomputeVertexProduct() {
  Iterate<Real>& it = iterate_;
  std::vector<double> losses(static_cast<size_t>(it.layer->rows));
  const auto fill = [&](int64_t row, Real* out) {
    std::vector<uint64_t> kept(static_cast<size_t>(it.layer->words));
    std::transform(it.fixed.row(row), it.fixed.row(row) + it.layer->words, it.previous.row(row),
                   kept.begin(), std::bit_or<>());
    Kernels<Real>().zero_masked(it.layer->words, it.layer->weights.row(row), kept.data(), out);
  };
  const auto visit = [&](int64_t row, const Real*, const Real* product) {
    std::copy_n(product, it.layer->stride(), it.vertex_product.row(row));
    losses[static_cast<size_t>(row)] =
        Kernels<Real>().masked_dot(it.layer->words, it.layer->weights.row(row), product,
                                   it.fixed.row(row), it.previous.row(row));
  };
  SPARSEFW_RETURN_IF_ERROR(MultiplyByGram<Real>(*it.layer, context_, fill, visit));
  update_.SetLosses(losses);
  at_.vertex_loss = std::accumulate(losses.begin(), losses.end(), 0.0);
  return absl::OkStatus();
}

// E, moved by `step_size` from where it is, and the loss of the recurrence
// against D(M) G and its loss; `replace`: which then take their place.
template <typename Real>
absl::Status FrankWolfe<Real>::CompareWithDense(double step_size, bool replace) {
  Iterate<Real>& it = iterate_;
  std::vector<DenseRow> rows(static_cast<size_t>(it.layer->rows));
  const auto fill = [&](int64_t row, Real* out) {
    if (replace) relaxed_.Fold(row, it.previous.row(row));
    for (int64_t col = 0; col < it.layer->cols; ++col) {
      if (it.fixed.Get(row, col)) continue;
      const Real kept = relaxed_.Value(row, col, it.previous.Get(row, col));
      out[col] = it.layer->weights(row, col) * (1 - kept);
    }
  };
  const bool screened = screen_ != nullptr && screen_->running();
  const auto visit = [&](int64_t row, const Real* pruned, const Real* product) {
    rows[static_cast<size_t>(row)] =
        screened ? Compare(screen_->row(row), product)
                 : Compare(it.Row(row), static_cast<Real>(step_size), product);
    const uint64_t* const fixed = it.fixed.row(row);  // where `pruned` is 0
    rows[static_cast<size_t>(row)].loss =
        Kernels<Real>().masked_dot(it.layer->words, pruned, product, fixed, fixed);
    if (replace) std::copy_n(product, it.layer->stride(), it.product.row(row));
  };
  SPARSEFW_RETURN_IF_ERROR(MultiplyByGram<Real>(*it.layer, context_, fill, visit));
  DenseRow sum;
  for (const DenseRow& row : rows) {
    sum.loss += row.loss;
    sum.difference += row.difference;
    sum.norm += row.norm;
  }
  const auto relative = [](double difference, double of) { return of > 0 ? difference / of : 0; };
  drift_ = std::max({drift_, std::sqrt(relative(sum.difference, sum.norm)),
                     relative(std::abs(at_.relaxed_loss - sum.loss), sum.loss)});
  if (replace) at_.relaxed_loss = sum.loss;
  compared_at_ = at_.iteration;
  return absl::OkStatus();
}

#define SPARSEFW_INSTANTIATE(Real)                                  \
  template absl::Status FrankWolfe<Real>::RecomputeVertexProduct(); \
  template absl::Status FrankWolfe<Real>::CompareWithDense(double, bool)
SPARSEFW_INSTANTIATE(float);
SPARSEFW_INSTANTIATE(double);
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cpu
