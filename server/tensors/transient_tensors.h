// Tensors that came with a Prune call and belong to its job alone.
#ifndef SPARSEFW_SERVER_TENSORS_TRANSIENT_TENSORS_H_
#define SPARSEFW_SERVER_TENSORS_TRANSIENT_TENSORS_H_

#include <set>
#include <string>
#include <vector>

#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Deletes the inputs of a Prune call with its job, so that only the result stays. Inputs that an
// earlier run has left are marked from the beginning. Thread-safe.
class TransientTensors {
 public:
  explicit TransientTensors(TensorStore* store);

  void Mark(const std::string& name);
  // A job has released its input: deletes the tensor if it is marked. While another
  // job holds it, that one's release does.
  void Release(const std::string& name);
  // Called once the jobs of the earlier run hold their inputs again. Deletes what that run has left
  // and no job holds.
  void ReleaseLeft();

 private:
  TensorStore* const store_;
  const std::vector<std::string> left_;
  Mutex mutex_;
  std::set<std::string> marked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_TRANSIENT_TENSORS_H_
