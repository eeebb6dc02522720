#include "server/rpc/transient_tensors.h"

namespace sparsefw::server {

void TransientTensors::Mark(const std::string& name) {
  MutexLock lock(mutex_);
  names_.insert(name);
}

void TransientTensors::Release(const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (!names_.contains(name)) return;
  }
  const absl::Status status = store_->DeleteTensor(name);
  if (absl::IsFailedPrecondition(status)) return;  // in use: its last reader releases it
  MutexLock lock(mutex_);
  names_.erase(name);
}

}  // namespace sparsefw::server
