// Shared by the parts of the emulated runtime.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_RUNTIME_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_RUNTIME_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace cuda_on_host {

using Operation = std::function<void()>;

// Remembers an error for cudaGetLastError and hands it on; a fault that a test
// put in (control.h) takes its place.
cudaError_t Report(cudaError_t error);

// cudaSuccess, or why nothing can be done: a fault, no device.
cudaError_t DeviceState();

// Runs the operation, or records it if the stream is in capture. The default
// stream is the null pointer. One operation of a stream at a time.
cudaError_t Enqueue(cudaStream_t stream, Operation operation);

// For calls that CUDA refuses to a thread in whose capture they would have no
// part: cudaErrorStreamCaptureUnsupported, and the capture is void.
cudaError_t RefuseInCapture();
// The same for a call on a stream that is itself in capture.
cudaError_t RefuseInCapture(cudaStream_t stream);

// Bytes that the device has.
size_t DeviceBytes();
// Whether all of it lies in one allocation of the device.
bool IsDeviceRange(const void* pointer, size_t bytes);

// The memory behind launch.cuh's DynamicShared.
inline constexpr size_t kMaxDynamicShared = 232448;  // 227 KiB, Hopper's

// From now on the first `bytes` may be used; under AddressSanitizer no others.
void OpenDynamicShared(size_t bytes);
// Fills them with 0xff.
void FillDynamicShared(size_t bytes);
void CloseDynamicShared();

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_RUNTIME_H_
