// Stores the results of jobs as tensors.
#ifndef SPARSEFW_SERVER_RUNNER_RESULT_WRITER_H_
#define SPARSEFW_SERVER_RUNNER_RESULT_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/job.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/solver.h"

namespace sparsefw::server {

// The room that the results of a job need at most: the masks that a sweep keeps, and the pruned
// weight where it is asked for.
RoomNeed ResultRoom(const JobSpec& spec, const MatrixSpec& weight);

// Used for one job. Its arguments must outlive it.
class ResultWriter {
 public:
  ResultWriter(TensorStore* store, const Job& job, const TensorHandle& weight, TensorRoom* room);

  // The tensor's name.
  absl::StatusOr<std::string> PutMask(const Mask& mask);
  // Writes result->pruned_weight where the job asks for it: the new weights, or
  // W with the removed weights set to zero. A failure is recorded in
  // result->incomplete, since the mask is worth keeping.
  void PutWeights(const SolveResult& solved, JobResult* result);

 private:
  // When a tensor that is stored now expires.
  absl::Time ExpireTime() const;
  absl::StatusOr<std::string> PutWeights(const SolveResult& solved);

  TensorStore* const store_;
  const Job& job_;
  const TensorHandle& weight_;
  TensorRoom* const room_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_RESULT_WRITER_H_
