// Masks that somebody has just been told of and is about to read.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_RESULT_FETCHES_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_RESULT_FETCHES_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Between the end of a client's watch and its ReadTensor there is a moment
// without a call, in which a server that drains must not leave. Thread-safe.
class ResultFetches {
 public:
  // A watcher has got the end of a job with this mask.
  void Told(const std::string& mask);
  // The mask has been read to its end.
  void Fetched(const std::string& mask);

  // From now on every mask told of is waited for. One that was told of before
  // is waited for until half a second after that.
  void BeginDrain();
  // Returns when all of them have been read, once for every time they were told
  // of, or `timeout` is over.
  void WaitUntilFetched(absl::Duration timeout);

 private:
  void DropOldLocked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::multimap<std::string, absl::Time> told_ ABSL_GUARDED_BY(mutex_);  // mask -> wait until
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_RESULT_FETCHES_H_
