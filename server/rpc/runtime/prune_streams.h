// Which Prune streams follow which job.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_PRUNE_STREAMS_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_PRUNE_STREAMS_H_

#include <map>
#include <string>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Streams with one request id share one job: a client that repeats a broken
// call must not lose it because the server notices late that the first is gone.
// Thread-safe.
class PruneStreams {
 public:
  void Attach(const std::string& job);
  // True for the last stream of the job.
  bool Detach(const std::string& job);

 private:
  Mutex mutex_;
  std::map<std::string, int> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_PRUNE_STREAMS_H_
