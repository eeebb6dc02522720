#include "core/benchmarks/dense_baseline.h"

#include "core/src/blas.h"
#include "core/src/parallel.h"
#include "core/src/selection.h"

namespace sparsefw::bench {
namespace {

constexpr int64_t kRowsPerTask = 16;

}  // namespace

DenseBaseline::DenseBaseline(const BenchLayer& layer)
    : layer_(layer),
      free_capacity_(layer.warm.CountKept() - layer.fixed.CountKept()),
      mask_(layer.weights.rows(), layer.weights.cols()),
      pruned_(layer.weights.rows(), layer.weights.cols()),
      product_(layer.weights.rows(), layer.weights.cols()),
      scores_(layer.weights.rows(), layer.weights.cols()) {
  for (int64_t row = 0; row < mask_.rows(); ++row) {
    for (int64_t col = 0; col < mask_.cols(); ++col) {
      mask_(row, col) = layer.warm.Get(row, col) ? 1.0F : 0.0F;
    }
  }
}

void DenseBaseline::ComputeProduct() {
  ParallelFor(mask_.rows(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * mask_.cols(); i < end * mask_.cols(); ++i) {
      pruned_.data()[i] = layer_.weights.data()[i] * (1 - mask_.data()[i]);
    }
  });
  GemmF32({.rows = mask_.rows(),
           .cols = mask_.cols(),
           .depth = mask_.cols(),
           .a = pruned_.data(),
           .a_stride = mask_.cols(),
           .b = layer_.gram.data(),
           .b_stride = mask_.cols(),
           .c = product_.data(),
           .c_stride = mask_.cols()});
}

void DenseBaseline::Step() {
  ComputeProduct();
  Mask candidates(mask_.rows(), mask_.cols());
  ParallelFor(mask_.rows(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < mask_.cols(); ++col) {
        scores_(row, col) = layer_.weights(row, col) * product_(row, col);
        if (scores_(row, col) > 0 && !layer_.fixed.Get(row, col)) candidates.Set(row, col, true);
      }
    }
  });
  Mask vertex(mask_.rows(), mask_.cols());
  KeepTopOfMatrix(scores_.view(), &candidates, free_capacity_, vertex);
  const float step = 2.0F / static_cast<float>(iteration_ + 2);
  ParallelFor(mask_.rows(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < mask_.cols(); ++col) {
        if (layer_.fixed.Get(row, col)) continue;
        const float target = vertex.Get(row, col) ? 1.0F : 0.0F;
        mask_(row, col) += step * (target - mask_(row, col));
      }
    }
  });
  ++iteration_;
}

double DenseBaseline::RelaxedLoss() {
  ComputeProduct();
  double loss = 0;
  for (int64_t i = 0; i < mask_.size(); ++i) {
    loss += static_cast<double>(pruned_.data()[i]) * static_cast<double>(product_.data()[i]);
  }
  return loss;
}

}  // namespace sparsefw::bench
