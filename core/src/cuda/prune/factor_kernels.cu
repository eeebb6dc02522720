#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/prune/factor_kernels.h"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

// A thread takes two columns of a row.
constexpr int64_t kColumnsOfBlock = 2 * kBlockThreads;

LaunchShape PairsOf(int64_t rows, int64_t stride) {
  return {.blocks_x = rows, .blocks_y = (stride + kColumnsOfBlock - 1) / kColumnsOfBlock};
}

__device__ int64_t FirstColumn() {
  return static_cast<int64_t>(blockIdx.y) * kColumnsOfBlock + 2 * threadIdx.x;
}

__global__ void DiagonalKernel(const double* matrix, int64_t size, int64_t stride,
                               double* diagonal) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i < size) diagonal[i] = matrix[i * stride + i];
}

__global__ void ShiftedKernel(const double* matrix, const double* diagonal, double added,
                              bool reversed, int64_t size, int64_t stride, double* out) {
  const int64_t row = blockIdx.x;
  const int64_t from = reversed ? size - 1 - row : row;
  for (int64_t col = FirstColumn(), k = 0; k < 2; ++k, ++col) {
    if (col >= size) return;
    const int64_t column = reversed ? size - 1 - col : col;
    out[row * stride + col] = row == col ? diagonal[from] + added : matrix[from * stride + column];
  }
}

__global__ void IdentityKernel(int64_t stride, double* out) {
  const int64_t row = blockIdx.x;
  const int64_t col = FirstColumn();
  if (col >= stride) return;
  *reinterpret_cast<double2*>(out + row * stride + col) =
      double2{col == row ? 1.0 : 0.0, col + 1 == row ? 1.0 : 0.0};
}

__global__ void ReversedKernel(const double* lower, int64_t size, int64_t stride, double* out) {
  const int64_t row = blockIdx.x;
  const double* from = lower + (size - 1 - row) * stride;
  const int64_t col = FirstColumn();
  if (col >= stride) return;
  const bool first = col >= row && col < size;
  const bool second = col + 1 >= row && col + 1 < size;
  *reinterpret_cast<double2*>(out + row * stride + col) =
      double2{first ? from[size - 1 - col] : 0.0, second ? from[size - 2 - col] : 0.0};
}

// One block.
__global__ void SmallPivotKernel(const double* factor, const double* diagonal, double added,
                                 bool reversed, int64_t size, int64_t stride, const int* info,
                                 SmallPivot* found) {
  const double least = static_cast<double>(size) * 0x1.0p-52;
  const int64_t end = *info > 0 ? *info - 1 : size;
  const auto diagonal_of = [&](int64_t i) { return diagonal[reversed ? size - 1 - i : i] + added; };
  int64_t first = end;
  for (int64_t i = threadIdx.x; i < end && i < first; i += kBlockThreads) {
    const double root = factor[i * stride + i];
    // The negation catches NaN.
    if (!(root > 0 && root * root >= least * diagonal_of(i))) first = i;
  }
  first = BlockReduce(first, [](int64_t a, int64_t b) { return a < b ? a : b; });
  if (threadIdx.x != 0) return;
  found->place = first;
  if (first == size) return;
  const double root = factor[first * stride + first];
  // Where it ended the place may still hold what is left of the diagonal.
  const double left = root < 0 ? root : 0;
  found->pivot = first < end ? root * root : left;
  found->diagonal = diagonal_of(first);
}

}  // namespace

CudaError LaunchDiagonal(const double* matrix, int64_t size, int64_t stride, double* diagonal,
                         cudaStream_t stream) {
  return Launch(DiagonalKernel, {.blocks_x = (size + kBlockThreads - 1) / kBlockThreads}, stream,
                matrix, size, stride, diagonal);
}

CudaError LaunchShifted(const double* matrix, const double* diagonal, double added, bool reversed,
                        int64_t size, int64_t stride, double* out, cudaStream_t stream) {
  return Launch(ShiftedKernel, PairsOf(size, stride), stream, matrix, diagonal, added, reversed,
                size, stride, out);
}

CudaError LaunchIdentity(int64_t size, int64_t stride, double* out, cudaStream_t stream) {
  return Launch(IdentityKernel, PairsOf(size, stride), stream, stride, out);
}

CudaError LaunchReversed(const double* lower, int64_t size, int64_t stride, double* out,
                         cudaStream_t stream) {
  return Launch(ReversedKernel, PairsOf(size, stride), stream, lower, size, stride, out);
}

CudaError LaunchFindSmallPivot(const double* factor, const double* diagonal, double added,
                               bool reversed, int64_t size, int64_t stride, const int* info,
                               SmallPivot* found, cudaStream_t stream) {
  return Launch(SmallPivotKernel, {}, stream, factor, diagonal, added, reversed, size, stride, info,
                found);
}

}  // namespace sparsefw::cuda
