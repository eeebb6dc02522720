#include "core/src/cuda/linalg/symmetric_product.h"

#include <cmath>
#include <type_traits>

#include "core/src/cuda/linalg/layer_kernels.h"
#include "core/src/cuda/runtime/cuda_status.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cuda {
namespace {

template <typename Real>
constexpr bool kSplits = std::is_same_v<Real, float>;

}  // namespace

template <typename Real>
absl::StatusOr<SymmetricProduct<Real>> SymmetricProduct<Real>::Create(
    const DeviceLayer<Real>& layer, int64_t rows, Use use, ProductPrecision precision,
    const ExecutionContext& context) {
  const int64_t size = rows * layer.stride;
  const cudaStream_t stream = context.stream();
  SymmetricProduct result(layer, precision, context);
  if constexpr (kSplits<Real>) {
    const int64_t gram = layer.gram.size();
    result.factor_ = std::ldexp(1.0F, kHalfExponent - layer.largest_exponent);
    SPARSEFW_ASSIGN_OR_RETURN(result.gram_high_, DeviceBuffer<uint16_t>::Create(gram, stream));
    SPARSEFW_ASSIGN_OR_RETURN(result.gram_low_, DeviceBuffer<uint16_t>::Create(gram, stream));
    SPARSEFW_ASSIGN_OR_RETURN(result.high_, DeviceBuffer<uint16_t>::Create(size, stream));
    SPARSEFW_ASSIGN_OR_RETURN(result.low_, DeviceBuffer<uint16_t>::Create(size, stream));
    if (use == Use::kRows) {
      SPARSEFW_ASSIGN_OR_RETURN(result.scale_, DeviceBuffer<Real>::Create(rows, stream));
    }
    SPARSEFW_ASSIGN_OR_RETURN(result.columns_,
                              DeviceBuffer<Real>::Create(2 * layer.stride, stream));
    Real* columns = result.columns_.data();
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchBalance(layer.gram.data(), layer.cols, layer.stride,
                                                layer.largest_exponent, columns, stream));
    // G is stored as the transpose of S^-1 G: its columns are divided, too.
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSplit(
        layer.gram.data(), gram, layer.stride,
        {result.gram_high_.data(), result.gram_low_.data(), result.factor_, columns + layer.stride},
        stream));
    SPARSEFW_ASSIGN_OR_RETURN(auto counter, DeviceBuffer<int>::Create(1, stream));
    SPARSEFW_ASSIGN_OR_RETURN(const int misfits, context.Counted(counter.data(), [&] {
      return LaunchCountMisfits(layer.weights.data(), layer.size(), layer.stride,
                                result.operand(Values::kAny), counter.data(), stream);
    }));
    result.weights_fit_ = misfits == 0;
  } else if (use == Use::kOperand) {
    SPARSEFW_ASSIGN_OR_RETURN(result.values_, DeviceBuffer<Real>::Create(size, stream));
  }
  return result;
}

template <typename Real>
int64_t SymmetricProduct<Real>::Bytes(int64_t rows, int64_t cols, Use use) {
  constexpr int64_t kSize = sizeof(Real);
  const int64_t stride = StrideOf(cols);
  if (!kSplits<Real>) return use == Use::kOperand ? kSize * rows * stride : 0;
  return kSize * ((rows + cols + 2) * stride + (use == Use::kRows ? rows : 0)) +
         int64_t{sizeof(int)};
}

template <typename Real>
LeftOperand<Real> SymmetricProduct<Real>::operand(Values values) {
  if constexpr (kSplits<Real>) {
    return {high_.data(), Products(values) < 3 ? nullptr : low_.data(), factor_, columns_.data()};
  } else {
    return {values_.data()};
  }
}

// alpha A G with the operand's parts, the smaller products first.
template <typename Real>
absl::Status SymmetricProduct<Real>::MultiplyHalves(int64_t rows, bool low, double alpha,
                                                    Real* out) const {
  // Tensor cores read both operands along the depth fastest.
  ProductArgs args = {.rows = rows,
                      .cols = layer_.cols,
                      .depth = layer_.stride,
                      .a = {high_.data(), layer_.stride},
                      .b = {gram_low_.data(), layer_.stride, /*transposed=*/true},
                      .c = out,
                      .c_stride = layer_.stride,
                      .input = CUDA_R_16F,
                      .alpha = alpha};
  if (precision_ == ProductPrecision::kFloat32) {
    SPARSEFW_RETURN_IF_ERROR(context_.Multiply(args));
    args.beta = 1;
  }
  args.b.data = gram_high_.data();
  if (low) {
    args.a.data = low_.data();
    SPARSEFW_RETURN_IF_ERROR(context_.Multiply(args));
    args.a.data = high_.data();
  }
  return context_.Multiply(args);
}

template <typename Real>
absl::Status SymmetricProduct<Real>::Multiply(int64_t rows, Values values, Real* out) const {
  if constexpr (kSplits<Real>) {
    const double factor = static_cast<double>(factor_);
    return MultiplyHalves(rows, Products(values) == 3, 1 / (factor * factor), out);
  } else {
    return context_.MultiplyBySymmetric(rows, layer_.cols, layer_.stride, values_.data(),
                                        layer_.gram.data(), out);
  }
}

template <typename Real>
absl::Status SymmetricProduct<Real>::MultiplyRows(int64_t rows, const Real* a, Real* out) {
  if constexpr (kSplits<Real>) {
    SPARSEFW_CUDA_RETURN_IF_ERROR(LaunchSplitRows(a, rows, layer_.stride, factor_,
                                                  {high_.data(), low_.data(), 1, columns_.data()},
                                                  scale_.data(), context_.stream()));
    return MultiplyHalves(rows, precision_ == ProductPrecision::kFloat32, 1, out);
  } else {
    return context_.MultiplyBySymmetric(rows, layer_.cols, layer_.stride, a, layer_.gram.data(),
                                        out);
  }
}

template class SymmetricProduct<float>;
template class SymmetricProduct<double>;

}  // namespace sparsefw::cuda
