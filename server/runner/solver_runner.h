// Runs jobs with the solver on tensors of the store.
#ifndef SPARSEFW_SERVER_RUNNER_SOLVER_RUNNER_H_
#define SPARSEFW_SERVER_RUNNER_SOLVER_RUNNER_H_

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/job_runner.h"
#include "server/runner/checkpoint_folder.h"
#include "server/tensors/store/budget.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/backend.h"
#include "sparsefw/problem.h"

namespace sparsefw::server {

struct SolverRunnerOptions {
  std::vector<const Backend*> backends;          // required: DefaultDevice::usable
  std::vector<const Backend*> default_backends;  // required: DefaultDevice::pool
  int threads_per_job = 1;
  CheckpointFolder* checkpoints = nullptr;  // none: interrupted jobs begin anew
  // Host memory of all running jobs together.
  int64_t solve_memory_bytes = std::numeric_limits<int64_t>::max();
  // What every device has for its running jobs. A job with a shrinkage has a Gram of its own: it
  // shares the other one only where both fit.
  int64_t device_memory_bytes = std::numeric_limits<int64_t>::max();
};

// Thread-safe. The store outlives it. The values of a tensor are
// checked by the first Prepare that names it and checks values, and never again.
//
// A job without a device of its own runs on the CPU where the default device cannot do a part of it
// (job_needs.h).
//
// Errors of Prepare, each naming field and value; those about a tensor carry
// the metadata "field", the field of the spec that names it:
//   InvalidArgument     options (OPTION_INVALID), pattern (PATTERN_INVALID), a
//                       tensor of another kind (WRONG_TENSOR_KIND) or shape
//                       (SHAPE_MISMATCH), values (NON_FINITE, GRAM_ASYMMETRIC,
//                       GRAM_NEGATIVE_DIAGONAL, GRAM_NOT_POSITIVE_DEFINITE,
//                       WARM_MASK_COUNT); a part that the named device
//                       cannot do (OPTION_INVALID)
//   FailedPrecondition  a tensor that is not there (TENSOR_NOT_FOUND), a device
//                       that is not there (DEVICE_UNAVAILABLE)
//   ResourceExhausted   the layer needs more host memory than the machine has or
//                       running jobs may use (HOST_MEMORY); there is no room
//                       for its results (TensorStore::ReserveRoom)
class SolverRunner final : public JobRunner {
 public:
  SolverRunner(TensorStore* store, SolverRunnerOptions options);

  absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec& spec, const Owner& owner,
                                                  Values values) override;
  absl::StatusOr<DeviceNeed> Check(const JobSpec& spec, const InputSpecs& inputs) override;
  absl::StatusOr<JobResult> Run(const Job& job, Inputs& inputs, const Placement& placement,
                                const StopSignal& stop,
                                const std::function<void(const ProgressReport&)>& report) override;
  RunMark Saved(const std::string& job) const override;
  void ReleaseInputs(const JobSpec& spec) override;
  void Discard(const Job& job) override;

 private:
  using Handle = std::shared_ptr<const TensorHandle>;
  struct SolverInputs;
  // Whether bytes of inputs are read, which may take minutes, and what stops that.
  struct Reading {
    bool now = false;
    const StopSignal* stop = nullptr;
  };

  absl::StatusOr<Handle> Acquire(std::string_view field, const std::string& name, TensorKind kind,
                                 Reading reading);
  // Fills `spec` from the tensor, where there is a name.
  absl::Status Describe(std::string_view field, const std::string& name, TensorKind kind,
                        std::optional<MatrixSpec>* spec);

  struct Needs {
    int64_t working_bytes = 0;
    RoomNeed results;
    DeviceNeed device;
  };
  // Options and device; returns the backends that may run it.
  absl::StatusOr<std::vector<const Backend*>> CheckOptions(const JobSpec& spec) const;
  // Pattern, shapes and memory, as far as the inputs are known.
  absl::StatusOr<Needs> CheckLayer(const JobSpec& spec, const InputSpecs& inputs,
                                   const std::vector<const Backend*>& backends) const;
  absl::Status AcquireInputs(const JobSpec& spec, Reading reading, SolverInputs* inputs);
  absl::Status CheckValues(const JobSpec& spec, SolverInputs* inputs);
  absl::StatusOr<JobResult> SolvePoints(const Job& job, absl::Time deadline, const Problem& problem,
                                        const Backend& backend, const TensorHandle& weight,
                                        TensorRoom* room, const StopSignal& stop,
                                        const std::function<void(const ProgressReport&)>& report);

  TensorStore* const store_;
  const SolverRunnerOptions options_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_SOLVER_RUNNER_H_
