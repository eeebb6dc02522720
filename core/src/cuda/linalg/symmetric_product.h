// Products with a layer's Gram matrix: in float32 on tensor cores, in float64 as they are.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_SYMMETRIC_PRODUCT_H_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_SYMMETRIC_PRODUCT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/src/cuda/linalg/half_split.h"
#include "core/src/cuda/memory/device_buffer.h"
#include "core/src/cuda/memory/device_layer.h"
#include "core/src/cuda/runtime/execution_context.h"
#include "sparsefw/engine_details.h"

namespace sparsefw::cuda {

// out = A G, A in panels of rows.
//
// Numeric: in float32 A S and S^-1 G are sums of two float16 matrices (half_split.h), and
//          A G = A_high G_high + A_high G_low + A_low G_high, each product summed in float32 by
//          tensor cores. What is left out, A_low G_low, is below 2^-22 |A| |G|. The least float16
//          adds 2^-39 (m |S^-1 G| + |A S| max|G|), m = max|W| or the largest of a row of A S.
//          A_low is left out too where A consists of values of W, all of which fit one float16.
//          ProductPrecision below float32: A_high G_high alone, 2^-10 in place of 2^-22.
//          In float64 it is one product.
// Memory:  float32: 4 cols * stride bytes on the device for G and 4 * rows * stride for A;
//          float64: 8 * rows * stride for an operand
// Errors:  Cancelled, ResourceExhausted, what went wrong on the device
//
// Not thread-safe. The layer and the context must outlive it.
template <typename Real>
class SymmetricProduct {
 public:
  // Where A comes from: the caller writes it to operand(), for Multiply, or has it, for
  // MultiplyRows.
  enum class Use { kOperand, kRows };

  // For panels of at most `rows` rows. Waits for the stream.
  static absl::StatusOr<SymmetricProduct> Create(const DeviceLayer<Real>& layer, int64_t rows,
                                                 Use use, ProductPrecision precision,
                                                 const ExecutionContext& context);
  static int64_t Bytes(int64_t rows, int64_t cols, Use use);

  // Values of A that an operand of this kind has: some of W and 0, or any up to max|W|.
  enum class Values { kWeights, kAny };

  // Where the caller writes A, rows `stride` elements apart, the padding 0.
  LeftOperand<Real> operand(Values values);
  // How many products of float16 matrices Multiply takes.
  int Products(Values values) const {
    if (precision_ != ProductPrecision::kFloat32) return 1;
    return values == Values::kWeights && weights_fit_ ? 2 : 3;
  }
  // Enqueues out [rows, stride] = A G of what was written; the padding of `out` is left alone or
  // becomes 0.
  absl::Status Multiply(int64_t rows, Values values, Real* out) const;

  // The same with Use::kRows, for an A of any range, [rows, stride] on the device. Where scale() is
  // not null, row r of A G is scale()[r] times row r of `out`.
  absl::Status MultiplyRows(int64_t rows, const Real* a, Real* out);
  const Real* scale() const { return scale_.data(); }

 private:
  SymmetricProduct(const DeviceLayer<Real>& layer, ProductPrecision precision,
                   const ExecutionContext& context)
      : layer_(layer), precision_(precision), context_(context) {}
  absl::Status MultiplyHalves(int64_t rows, bool low, double alpha, Real* out) const;

  const DeviceLayer<Real>& layer_;
  ProductPrecision precision_;
  float factor_ = 1;  // of W S and of S^-1 G: half_split.h
  const ExecutionContext& context_;
  bool weights_fit_ = false;  // each is one float16, as near as the smallest float16 allows
  // float32 only:
  DeviceBuffer<Real> columns_;  // the diagonal of S, then of S^-1
  DeviceBuffer<uint16_t> gram_high_;
  DeviceBuffer<uint16_t> gram_low_;
  DeviceBuffer<uint16_t> high_;
  DeviceBuffer<uint16_t> low_;
  DeviceBuffer<Real> scale_;
  // float64 and Use::kOperand only:
  DeviceBuffer<Real> values_;
};

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_SYMMETRIC_PRODUCT_H_
