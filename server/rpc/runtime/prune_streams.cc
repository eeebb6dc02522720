#include "server/rpc/runtime/prune_streams.h"

namespace sparsefw::server {

void PruneStreams::Attach(const std::string& job) {
  MutexLock lock(mutex_);
  ++streams_[job];
}

bool PruneStreams::Detach(const std::string& job) {
  MutexLock lock(mutex_);
  const auto found = streams_.find(job);
  if (found == streams_.end()) return true;
  if (--found->second > 0) return false;
  streams_.erase(found);
  return true;
}

}  // namespace sparsefw::server
