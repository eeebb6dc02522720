#include "server/rpc/runtime/transient_tensors.h"

namespace sparsefw::server {

void TransientTensors::Mark(const std::string& name) {
  MutexLock lock(mutex_);
  marked_.emplace(name, false);
}

// The flag is set before the attempt, so that a reader that releases the tensor
// in between sees it.
void TransientTensors::Release(const std::string& name) {
  {
    MutexLock lock(mutex_);
    const auto found = marked_.find(name);
    if (found == marked_.end()) return;
    found->second = true;
  }
  const absl::Status status = store_->DeleteTensor(name);
  if (absl::IsFailedPrecondition(status)) return;  // in use: the last reader deletes it
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
