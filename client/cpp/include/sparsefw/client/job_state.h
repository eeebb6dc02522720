#ifndef SPARSEFW_CLIENT_JOB_STATE_H_
#define SPARSEFW_CLIENT_JOB_STATE_H_

#include "sparsefw/v1/job.pb.h"

namespace sparsefw::client {

// The job has ended and will not change any more.
constexpr bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace sparsefw::client

#endif  // SPARSEFW_CLIENT_JOB_STATE_H_
