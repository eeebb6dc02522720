// Tensors that came with a Prune call and belong to its job alone.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_

#include <map>
#include <string>

#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Deletes the inputs of a Prune call with its job, so that only the result
// stays. Thread-safe.
class TransientTensors {
 public:
  explicit TransientTensors(TensorStore* store) : store_(store) {}

  void Mark(const std::string& name);
  // A job has released its input: deletes the tensor if it is marked. While a
  // reader holds it, ReleaseReader of the last one deletes it.
  void Release(const std::string& name);
  // A reader has released it: deletes the tensor if its job has released it too.
  void ReleaseReader(const std::string& name);

 private:
  TensorStore* const store_;
  Mutex mutex_;
  std::map<std::string, bool> marked_ ABSL_GUARDED_BY(mutex_);  // name -> released by a job
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_TRANSIENT_TENSORS_H_
