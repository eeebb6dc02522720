// CUDA's words for where code runs and where variables live.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_QUALIFIERS_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_QUALIFIERS_H_

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// A block runs on one thread of the host, blocks follow each other there, so
// what a block shares is what its thread has to itself. constinit: no guard, and
// an error for a constructor, which CUDA does not allow either.
#define __shared__ constinit thread_local

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_QUALIFIERS_H_
