// The device that a thread works on.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_USE_DEVICE_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_USE_DEVICE_H_

#include "absl/status/status.h"

namespace sparsefw::cuda {

// Makes `device` the current one of the calling thread. The first call of the process for a
// device makes its context, which takes some hundred MiB of its memory and a third of a second,
// and sets what holds for all of its streams: nothing else of the engine makes a context, so that
// a process has one on the devices it uses and on no others.
//
// Threads: safe. A device that hangs holds up the threads that use it, and no others.
// Errors:  what is wrong with the device
absl::Status UseDevice(int device);

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_USE_DEVICE_H_
