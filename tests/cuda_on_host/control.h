// Control of the emulated device by tests, beside the environment variables of
// cuda_runtime.h. tests/cuda_on_host/real_device.cc has some of it for tests that are
// built for a real device as well.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_CONTROL_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_CONTROL_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace cuda_on_host {

// False in programs that are built for a real device.
bool Emulated();

// From the `calls`-th call on, counted from 1, every call of the runtime but the releasing ones
// returns `error`, as after a fault of the device. cudaSuccess ends it.
void SetFault(cudaError_t error, int64_t calls = 1);

// The same for one device, as SPARSEFW_CUDA_ON_HOST_FAULT does. -1 ends it.
void SetDeviceFault(int device, int64_t calls = 1);

// Whether the process has made a context on the device.
bool HasContext(int device);

// Bytes of device memory that are allocated.
size_t AllocatedBytes();
// The most that were at once since the last ResetPeak, which makes it what is allocated now.
size_t PeakBytes();
void ResetPeak();

// From now on every cudaMallocAsync of more than `bytes` fails for want of memory
// until the pool is trimmed, as where all that is free is kept in small pieces.
void FailUntilTrimmed(size_t bytes);

// The next `captures` captures end with an error, as where another thread spoils them.
void FailCaptures(int64_t captures);

// Whether devices have memory pools; true at first.
void SetMemoryPoolsSupported(bool supported);

// Calls of cudaGetDeviceProperties and of cublasCreate so far.
int64_t PropertyQueries();
int64_t CublasHandlesMade();

// Calls of cudaMallocHost so far.
int64_t PinnedAllocations();

// Bytes copied from the host to the device so far, by all threads.
int64_t CopiedToDevice();

// Kernels launched so far, by all threads; those of a graph at each replay.
int64_t KernelLaunches();

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_CONTROL_H_
