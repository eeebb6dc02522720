#include "core/src/cuda/linalg/raw_rows.h"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/linalg/toggle_list.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

__device__ double Missing(const RawRows& rows, int64_t row, int64_t col) {
  const int64_t index = row * rows.stride + col;
  const double weight = rows.weights.At(index) * rows.factor;
  if (rows.other != nullptr) {
    return weight - static_cast<double>(rows.other[index]) * rows.other_factor;
  }
  const int64_t words =
      (rows.weights.cols + kRowAlignment - 1) / kRowAlignment * (kRowAlignment / 32);
  return BitOf(rows.kept + row * words, col) ? 0 : weight;
}

// One block a row.
__global__ void RawColumnsKernel(RawRows rows, int64_t first, int64_t count, int64_t depth,
                                 double* out) {
  const int64_t row = blockIdx.x;
  for (int64_t i = threadIdx.x; i < count; i += kBlockThreads) {
    out[row * depth + i] = Missing(rows, row, first + i);
  }
}

__global__ void AddRowDotsKernel(RawRows rows, const double* product, double* sums) {
  const int64_t row = blockIdx.x;
  double sum = 0;
  for (int64_t col = threadIdx.x; col < rows.weights.cols; col += kBlockThreads) {
    sum += Missing(rows, row, col) * product[row * rows.stride + col];
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) sums[row] += sum;
}

// One block a row: a row of G for every weight that one of the two keeps and the other does not.
template <typename Value>
__global__ void __launch_bounds__(kBlockThreads)
    LossChangesKernel(RawRows from, RawRows to, const Value* gram, double* sums) {
  __shared__ ToggleList<double> list;
  const int64_t row = blockIdx.x;
  const int64_t cols = from.weights.cols;
  const int64_t words = (cols + kRowAlignment - 1) / kRowAlignment * (kRowAlignment / 32);
  double sum = 0;
  for (int64_t word = 0; word < words; word += kListedWords) {
    const int total = ListToggles(
        from.kept + row * words, to.kept + row * words, words, word,
        [&](int64_t col) { return Missing(to, row, col) - Missing(from, row, col); }, list);
    for (int64_t col = threadIdx.x; total > 0 && col < cols; col += kBlockThreads) {
      double product = 0;
#pragma unroll 8
      for (int k = 0; k < total; ++k) {
        product += list.deltas[k] * static_cast<double>(gram[list.columns[k] * cols + col]);
      }
      sum += product * (Missing(from, row, col) + Missing(to, row, col));
    }
    __syncthreads();
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) sums[row] = sum;
}

}  // namespace

RawRows RawRows::Rows(int64_t first, int64_t count) const {
  RawRows part = *this;
  const int64_t elements = first * stride;
  const auto* bytes = static_cast<const unsigned char*>(weights.data);
  part.weights.data = bytes + elements * static_cast<int64_t>(SizeOf(weights.dtype));
  part.weights.rows = count;
  if (kept != nullptr) part.kept = kept + first * (StrideOf(weights.cols) / 32);
  if (other != nullptr) part.other = other + elements;
  return part;
}

CudaError LaunchRawColumns(const RawRows& rows, int64_t first, int64_t count, int64_t depth,
                           double* out, cudaStream_t stream) {
  return Launch(RawColumnsKernel, {.blocks_x = rows.weights.rows}, stream, rows, first, count,
                depth, out);
}

CudaError LaunchAddRowDots(const RawRows& rows, const double* product, double* sums,
                           cudaStream_t stream) {
  return Launch(AddRowDotsKernel, {.blocks_x = rows.weights.rows}, stream, rows, product, sums);
}

CudaError LaunchLossChanges(const RawRows& from, const RawRows& to, const RawMatrix& gram,
                            double* sums, cudaStream_t stream) {
  const auto launch = [&]<typename Value>(const Value* values) {
    return Launch(LossChangesKernel<Value>, {.blocks_x = from.weights.rows}, stream, from, to,
                  values, sums);
  };
  return gram.dtype == DType::kF64 ? launch(static_cast<const double*>(gram.data))
                                   : launch(static_cast<const float*>(gram.data));
}

}  // namespace sparsefw::cuda
