// The weights of rows from their tableaus, and the excluded columns that then would pay.
#include <limits>

#include "core/src/cuda/joint/joint_tile.cuh"
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"

namespace sparsefw::cuda {
namespace {

constexpr int kWeightThreads = 512;
// What leaving a group costs where nothing can leave: infinity, which kernels have no name for.
constexpr double kMostCost = std::numeric_limits<double>::max();

// <row, known> over the columns [begin, end), multiples of 4; a warp.
template <typename Real>
__device__ Real Dot(const Real* row, const Real* known, int64_t begin, int64_t end) {
  using W = Wide<Real>;
  using Vector = typename W::Vector;
  Real sum = 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 4
  for (int64_t c = begin + lane * W::kSize; c < end; c += kWarp * W::kSize) {
    Real a[W::kSize];
    Real b[W::kSize];
    W::Put(*reinterpret_cast<const Vector*>(row + c), a);
    W::Put(*reinterpret_cast<const Vector*>(known + c), b);
#pragma unroll
    for (int e = 0; e < W::kSize; ++e) sum += a[e] * b[e];
  }
  return sum;
}

// R_FF w_F = y - Y_F w, panel by panel from the last on; w the weights inside the tableau, which
// are known. A block a row.
template <typename Real>
__global__ void __launch_bounds__(kWeightThreads) WeightsKernel(JointBatch<Real> batch) {
  __shared__ Real right[kPanelRows];
  __shared__ Real triangle[kPanelRows * (kPanelRows + 1)];  // transposed: read along its rows
  const JointSizes& sizes = batch.sizes;
  const int64_t index = blockIdx.x;
  const int64_t eliminated = sizes.eliminated();
  const int64_t width = sizes.width();
  const Real* factor = batch.factor + index * eliminated * width;
  Real* known = batch.known + index * width;
  const int* columns = batch.columns + index * width;
  const unsigned char* inside = batch.inside + index * sizes.span;
  const Real* targets = batch.targets + index * sizes.span;
  const int thread = static_cast<int>(threadIdx.x);
  // The columns of the identity and what is beyond the positions have none.
  for (int64_t c = thread; c < width; c += kWeightThreads) {
    const int64_t z = c - eliminated;
    const int64_t t = z >= sizes.kept ? z : c - sizes.fixed;
    const bool there = (z < 0 && t >= 0) || (z >= sizes.kept && z < sizes.end);
    known[c] = there && inside[t] != 0 ? targets[t] : Real{0};
  }
  __syncthreads();
  for (int64_t panel = sizes.fixed - kPanelRows; panel >= 0; panel -= kPanelRows) {
    const Real* rows = factor + panel * width;
    for (int r = thread / kWarp; r < kPanelRows; r += kWeightThreads / kWarp) {
      const Real* row = rows + r * width;
      const Real dot = WarpSum(Dot(row, known, panel + kPanelRows, eliminated) +
                               Dot(row, known, eliminated + sizes.kept, eliminated + sizes.end));
      if (thread % kWarp == 0) right[r] = row[eliminated + sizes.target] - dot;
    }
    for (int i = thread; i < kPanelRows * kPanelRows; i += kWeightThreads) {
      const int r = static_cast<int>(i / kPanelRows);
      const int c = static_cast<int>(i % kPanelRows);
      triangle[c * (kPanelRows + 1) + r] = rows[r * width + panel + c];
    }
    __syncthreads();
    for (int r = kPanelRows - 1; r >= 0; --r) {
      const Real* above = triangle + r * (kPanelRows + 1);
      const Real weight = right[r] / above[r];
      if (thread == 0) known[panel + r] = weight;
      if (thread < r) right[thread] -= above[thread] * weight;
      __syncthreads();
    }
  }
  Real* solution = batch.solution + index * batch.stride;
  unsigned char* kept = batch.kept + index * batch.stride;
  for (int64_t j = thread; j < batch.stride; j += kWeightThreads) {
    solution[j] = 0;
    kept[j] = 0;
  }
  __syncthreads();
  for (int64_t c = thread; c < eliminated + sizes.end; c += kWeightThreads) {
    if (columns[c] < 0) continue;
    const int64_t t = c < eliminated ? c - sizes.fixed : c - eliminated;
    if (t >= 0 && inside[t] == 0) continue;
    solution[columns[c]] = known[c];
    kept[columns[c]] = 1;
  }
}

// The least that a kept weight of the tableau costs, of a group of columns.
template <typename Real>
__device__ double CheapestOf(const JointBatch<Real>& batch, int64_t index, int64_t first) {
  double least = kMostCost;
  for (int64_t j = first; j < first + batch.group_cols; ++j) {
    const int place = batch.places[index * batch.stride + j];
    if (place < 0 || batch.inside[index * batch.sizes.span + place] == 0) continue;
    const double cost = ChangeAt(batch, index, place);
    least = cost < least ? cost : least;
  }
  return least;
}

// Most gain first, of equal ones the lower column. A block a row.
template <typename Real>
__global__ void AdmitKernel(JointBatch<Real> batch, int64_t room) {
  const int64_t index = blockIdx.x;
  const int64_t offset = index * batch.stride;
  const int* places = batch.places + offset;
  double* bounds = batch.bounds + offset;
  const double tolerance = batch.rows[index].tolerance;
  double least = kMostCost;
  const bool one_group = batch.group_cols == batch.cols;
  if (one_group) {
    for (int64_t t = threadIdx.x; t < batch.sizes.end; t += kBlockThreads) {
      if (batch.inside[index * batch.sizes.span + t] == 0) continue;
      const double cost = ChangeAt(batch, index, t);
      least = cost < least ? cost : least;
    }
    least = BlockReduce(least, [](double a, double b) { return a < b ? a : b; });
  }
  for (int64_t j = threadIdx.x; j < batch.cols; j += kBlockThreads) {
    bounds[j] = 0;
    const auto diagonal = static_cast<double>(batch.gram[j * batch.stride + j]);
    if (places[j] != kExcludedPlace || !(diagonal > 0)) continue;
    const auto residual = static_cast<double>(ProductOf(batch, index, static_cast<int>(j)) -
                                              batch.rounded[offset + j]);
    const double gain = residual * residual / diagonal;
    const double cost =
        one_group ? least : CheapestOf(batch, index, j / batch.group_cols * batch.group_cols);
    if (gain > cost + tolerance) bounds[j] = gain;
  }
  int count = 0;
  for (; count < room; ++count) {
    Choice best = {0, 0};
    for (int64_t j = threadIdx.x; j < batch.cols; j += kBlockThreads) {
      if (bounds[j] > best.gain) best = {bounds[j], j};
    }
    best = BlockReduce(best, [](Choice a, Choice b) { return Better(a, b); });
    if (!(best.gain > 0)) break;
    const auto column = static_cast<int>(best.position);
    if (column % kBlockThreads == static_cast<int>(threadIdx.x)) bounds[column] = 0;
    if (threadIdx.x == 0) batch.admitted[index * kRoomOfRow + count] = column;
  }
  if (threadIdx.x != 0) return;
  batch.rows[index].entering = count;
  atomicMax(batch.counter, count);
}

}  // namespace

template <typename Real>
CudaError LaunchWeights(const JointBatch<Real>& batch, cudaStream_t stream) {
  return Launch(WeightsKernel<Real>, {.blocks_x = batch.count, .threads = kWeightThreads}, stream,
                batch);
}

template <typename Real>
CudaError LaunchAdmit(const JointBatch<Real>& batch, int64_t room, cudaStream_t stream) {
  SPARSEFW_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(batch.counter, 0, sizeof(int), stream));
  return Launch(AdmitKernel<Real>, {.blocks_x = batch.count}, stream, batch, room);
}

#define SPARSEFW_INSTANTIATE(Real)                                         \
  template CudaError LaunchWeights(const JointBatch<Real>&, cudaStream_t); \
  template CudaError LaunchAdmit(const JointBatch<Real>&, int64_t, cudaStream_t);
SPARSEFW_INSTANTIATE(float)
SPARSEFW_INSTANTIATE(double)
#undef SPARSEFW_INSTANTIATE

}  // namespace sparsefw::cuda
