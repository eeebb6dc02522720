// The parts of a watched job that do not change.
#ifndef SPARSEFW_CLIENT_SRC_KNOWN_JOB_H_
#define SPARSEFW_CLIENT_SRC_KNOWN_JOB_H_

#include "sparsefw/v1/job.pb.h"

namespace sparsefw::client::internal {

// Spec, owner and shape come with the first event of a watch and with changes of state; progress
// comes without them. Callers get them with every event.
class KnownJob {
 public:
  void Complete(v1::Job* job) {
    if (job->has_spec()) {
      *known_.mutable_spec() = job->spec();
      *known_.mutable_shape() = job->shape();
      known_.set_owner(job->owner());
    } else if (known_.has_spec()) {
      *job->mutable_spec() = known_.spec();
      *job->mutable_shape() = known_.shape();
      job->set_owner(known_.owner());
    }
  }

 private:
  v1::Job known_;
};

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_KNOWN_JOB_H_
