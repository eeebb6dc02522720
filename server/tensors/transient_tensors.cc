#include "server/tensors/transient_tensors.h"

namespace sparsefw::server {

TransientTensors::TransientTensors(TensorStore* store)
    : store_(store), left_(store->TransientTensorsLeft()), marked_(left_.begin(), left_.end()) {}

void TransientTensors::Mark(const std::string& name) {
  MutexLock lock(mutex_);
  marked_.insert(name);
}

void TransientTensors::Release(const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (!marked_.contains(name)) return;
  }
  const absl::Status status = store_->DeleteTensor(name);
  if (absl::IsFailedPrecondition(status)) return;  // in use by another job
  MutexLock lock(mutex_);
  marked_.erase(name);
}

void TransientTensors::ReleaseLeft() {
  for (const std::string& name : left_) Release(name);
}

}  // namespace sparsefw::server
