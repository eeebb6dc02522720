// Reductions and scans of a thread block, in a fixed order: the same input gives the same bits.
#ifndef SPARSEFW_CORE_SRC_CUDA_LINALG_REDUCE_CUH_
#define SPARSEFW_CORE_SRC_CUDA_LINALG_REDUCE_CUH_

#include <cuda_runtime.h>

namespace sparsefw::cuda {

// Threads of every block that reduces.
inline constexpr int kBlockThreads = 256;

// Values are combined in kSegments runs of threads each, then those: two
// barriers instead of one for every halving.
inline constexpr int kSegments = 16;

// Where a thread's value stands in shared memory: a gap after every segment
// keeps the threads that go through one each out of each other's banks.
template <int kSegment>
__device__ int SegmentPlace(int thread) {
  return thread + thread / kSegment;
}

// combine(a, b) over the values of all threads, known to all of them afterwards.
// Every thread of the block calls it.
template <int kThreads = kBlockThreads, typename T, typename Combine>
__device__ T BlockReduce(T value, const Combine& combine) {
  constexpr int kSegment = kThreads / kSegments;
  __shared__ T values[kThreads + kSegments];
  __shared__ T segments[kSegments];
  const int thread = static_cast<int>(threadIdx.x);
  values[SegmentPlace<kSegment>(thread)] = value;
  __syncthreads();
  if (thread < kSegments) {
    const T* segment = values + SegmentPlace<kSegment>(thread * kSegment);
    T sum = segment[0];
    for (int i = 1; i < kSegment; ++i) sum = combine(sum, segment[i]);
    segments[thread] = sum;
  }
  __syncthreads();
  // A next call first writes elsewhere than is still read here.
  T result = segments[0];
  for (int i = 1; i < kSegments; ++i) result = combine(result, segments[i]);
  return result;
}

template <int kThreads = kBlockThreads, typename T>
__device__ T BlockSum(T value) {
  return BlockReduce<kThreads>(value, [](T a, T b) { return a + b; });
}

// The sum of the values of the threads before this one; `total`: of all.
template <typename T>
__device__ T BlockExclusiveScan(T value, T* total) {
  constexpr int kSegment = kBlockThreads / kSegments;
  __shared__ T values[kBlockThreads + kSegments];
  __shared__ T segments[kSegments];
  const int thread = static_cast<int>(threadIdx.x);
  values[SegmentPlace<kSegment>(thread)] = value;
  __syncthreads();
  if (thread < kSegments) {
    T* segment = values + SegmentPlace<kSegment>(thread * kSegment);
    T sum = 0;
    for (int i = 0; i < kSegment; ++i) {
      const T next = segment[i];
      segment[i] = sum;
      sum += next;
    }
    segments[thread] = sum;
  }
  __syncthreads();
  T before = 0;
  T all = 0;
  for (int i = 0; i < kSegments; ++i) {
    if (i == thread / kSegment) before = all;
    all += segments[i];
  }
  *total = all;
  const T result = before + values[SegmentPlace<kSegment>(thread)];
  __syncthreads();  // before a next call writes `values`
  return result;
}

// The sum of an array, known to all threads of the one block that forms it.
// Several loads of a thread are under way at once.
__device__ inline double SumOf(const double* values, long long count) {
  constexpr int kAhead = 8;
  double sums[kAhead] = {};
  long long i = threadIdx.x;
  for (; i + (kAhead - 1) * kBlockThreads < count; i += kAhead * kBlockThreads) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) sums[k] += values[i + k * kBlockThreads];
  }
  for (; i < count; i += kBlockThreads) sums[0] += values[i];
  for (int k = 1; k < kAhead; ++k) sums[0] += sums[k];
  return BlockSum(sums[0]);
}

__device__ inline bool BitOf(const unsigned* words, long long col) {
  return ((words[col >> 5] >> (col & 31)) & 1U) != 0;
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_LINALG_REDUCE_CUH_
