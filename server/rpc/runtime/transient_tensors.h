// Tensors that came with a Prune call and belong to its job alone.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_

#include <map>
#include <string>

#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Remembers which tensors nobody will ask for once their job has ended, so
// that the one-call form leaves nothing behind but its result. Thread-safe.
class TransientTensors {
 public:
  explicit TransientTensors(TensorStore* store) : store_(store) {}

  void Mark(const std::string& name);
  // Called when a job lets go of its inputs: deletes the tensor if it is
  // marked. Where somebody still holds it, the last to let go deletes it.
  void Release(const std::string& name);
  // Called when one that is no job lets go of it: deletes it if its jobs have.
  void ReleaseReader(const std::string& name);

 private:
  TensorStore* const store_;
  Mutex mutex_;
  std::map<std::string, bool> marked_ ABSL_GUARDED_BY(mutex_);  // name -> released by a job
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_
