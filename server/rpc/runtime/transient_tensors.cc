#include "server/rpc/runtime/transient_tensors.h"

namespace sparsefw::server {

void TransientTensors::Mark(const std::string& name) {
  MutexLock lock(mutex_);
  marked_.emplace(name, false);
}

// The mark is set before the attempt: a reader that lets go in between finds it.
void TransientTensors::Release(const std::string& name) {
  {
    MutexLock lock(mutex_);
    const auto found = marked_.find(name);
    if (found == marked_.end()) return;
    found->second = true;
  }
  const absl::Status status = store_->DeleteTensor(name);
  if (absl::IsFailedPrecondition(status)) return;  // in use: the last to let go comes here again
  MutexLock lock(mutex_);
  marked_.erase(name);
}

void TransientTensors::ReleaseReader(const std::string& name) {
  {
    MutexLock lock(mutex_);
    const auto found = marked_.find(name);
    if (found == marked_.end() || !found->second) return;
  }
  Release(name);
}

}  // namespace sparsefw::server
