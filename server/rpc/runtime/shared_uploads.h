// Uploads that several calls write together.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_SHARED_UPLOADS_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_SHARED_UPLOADS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Who deletes an upload that has failed: the last of its callers. Thread-safe.
class SharedUploads {
 public:
  void Enter(const std::string& upload) {
    MutexLock lock(mutex_);
    ++callers_[upload];
  }
  // True: no other caller is left.
  bool Leave(const std::string& upload) {
    MutexLock lock(mutex_);
    const auto found = callers_.find(upload);
    if (--found->second > 0) return false;
    callers_.erase(found);
    return true;
  }

 private:
  Mutex mutex_;
  std::map<std::string, int> callers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_SHARED_UPLOADS_H_
