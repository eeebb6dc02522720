#include "core/src/cuda/runtime/stream.h"

namespace sparsefw::cuda {

Mutex& CaptureMutex() {
  static auto* mutex = new Mutex;  // engines may end after static objects do
  return *mutex;
}

}  // namespace sparsefw::cuda
