// What is made once and used again, kept apart for every device.
#ifndef SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_POOL_H_
#define SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_POOL_H_

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sparsefw/mutex.h"

namespace sparsefw::cuda {

// Things of one device that nobody uses now. Streams, cuBLAS handles and pinned memory are such:
// to make or free one waits for everything that runs on the device. Thread-safe.
template <typename T>
class DevicePool {
 public:
  std::optional<T> Take() {
    const MutexLock lock(mutex_);
    if (unused_.empty()) return std::nullopt;
    T taken = std::move(unused_.back());
    unused_.pop_back();
    return taken;
  }
  void Give(T unused) {
    const MutexLock lock(mutex_);
    unused_.push_back(std::move(unused));
  }

 private:
  Mutex mutex_;
  std::vector<T> unused_ ABSL_GUARDED_BY(mutex_);
};

// Never freed: CUDA may be gone before destructors of static objects run.
template <typename T>
DevicePool<T>& PoolOf(int device) {
  static auto* mutex = new Mutex;
  static auto* pools = new std::map<int, DevicePool<T>>;
  const MutexLock lock(*mutex);
  return (*pools)[device];
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_RUNTIME_DEVICE_POOL_H_
