// Jobs and uploads that several calls work on together.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_SHARED_NAMES_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_SHARED_NAMES_H_

#include <map>
#include <string>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Counts the calls of each name: the last one cleans up. Thread-safe.
class SharedNames {
 public:
  void Enter(const std::string& name) {
    MutexLock lock(mutex_);
    ++calls_[name];
  }
  // Ends an Enter. True: no other call is left.
  bool Leave(const std::string& name) {
    MutexLock lock(mutex_);
    const auto found = calls_.find(name);
    if (--found->second > 0) return false;
    calls_.erase(found);
    return true;
  }

 private:
  Mutex mutex_;
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_SHARED_NAMES_H_
