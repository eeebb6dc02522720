// CUDA on the host, for tests: what the project uses of CUDA, under CUDA's
// names, so that g++ compiles the engine's .cu and .cc files as they are and
// the tests prove their logic on machines without a GPU.
//
//   kernels   run on the calling thread, one block after the other; the
//             threads of a block are fibers that switch at barriers and warp
//             operations only (block_runner.h)
//   streams   execute at once: when a call returns, its work is done
//   graphs    record what is enqueued, arguments by value, and replay it
//   memory    malloc'ed, filled with 0xff (NaN) and limited
//
// Misuse that a device would punish with a hang or with garbage ends the program with a message:
// threads that wait for each other for ever, a barrier that threads reach at different lines, a
// warp operation whose mask lacks the caller.
//
// Not emulated, so not proven: races that need two threads to run at the same
// instant, memory order, the host's failing to wait for the device, the size
// of static shared memory, registers, launch bounds, host memory that a kernel
// touches, inline PTX, textures, cooperative groups, clusters.
//
// Environment; the numbers of launches are read once:
//   SPARSEFW_CUDA_ON_HOST_DEVICES  number of devices (1)
//   SPARSEFW_CUDA_ON_HOST_MEMORY   bytes of a device (8 GiB)
//   SPARSEFW_CUDA_ON_HOST_FAULT    "<device>:<calls>": from the calls-th call that names
//                                  that device or has it current on, counted from 1, each of
//                                  them fails with cudaErrorIllegalAddress: the device is lost
//   SPARSEFW_CUDA_ON_HOST_CONTEXTS a file to which the number of a device is appended, a line
//                                  each, when the process makes a context there
//   SPARSEFW_CUDA_ON_HOST_KERNELS  a file to which every launch of a kernel is appended, as a
//                                  line: the file that holds the kernel, its offset there
//   SPARSEFW_CUDA_ON_HOST_CUBLAS   the version that cuBLAS says it has (13.0.0)
//   SPARSEFW_CUDA_ON_HOST_HANG     number of the kernel launch of the process that
//                                  never returns, counted from 1
//   SPARSEFW_CUDA_ON_HOST_ORDER    "backward": blocks and threads run from the
//                                  last to the first. What a missing barrier
//                                  hides in one order shows in the other.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_

#if defined(__CUDACC__)
#error "The emulation is for host compilers; nvcc has CUDA itself"
#endif

// nvcc includes these for every source.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cuda_on_host/kernel_language.h"
#include "cuda_on_host/runtime_api.h"

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_
