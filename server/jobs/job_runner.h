// The interface between the job manager and what runs jobs.
#ifndef SPARSEFW_SERVER_JOBS_JOB_RUNNER_H_
#define SPARSEFW_SERVER_JOBS_JOB_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/jobs/devices.h"
#include "server/jobs/job.h"
#include "server/jobs/scheduling/shared_gram.h"
#include "sparsefw/stop_signal.h"

namespace sparsefw::server {

// Where the scheduler placed a job, and until when.
struct Placement {
  std::string device;                            // one of DeviceNeed::devices; "": the CPU
  std::shared_ptr<SharedGram> gram;              // on that device; null unless DeviceNeed names one
  absl::Time deadline = absl::InfiniteFuture();  // of the job, in steady time
};

// Implemented over the solver and the tensor store. Thread-safe.
class JobRunner {
 public:
  virtual ~JobRunner() = default;

  // The tensors of a valid spec, held from acceptance to the end of the job so
  // that they cannot be deleted meanwhile, and what a run will need.
  struct Inputs {
    virtual ~Inputs() = default;
    int64_t rows = 0;
    int64_t cols = 0;
    // Floating-point operations of the run, a rough guess: see FairShare.
    double cost = 0;
    JobNeed need;  // need.alone is the manager's
  };
  enum class Values {
    kUnchecked,
    kCheckedBefore,  // by a Prepare of the same spec, in an earlier process: Run is the first to
                     // read them
  };
  // Checks all that can be checked before the run: tensors exist, their values
  // (unless they were checked before) and shapes fit, options are in range, the
  // device exists, the owner's tenant has room for the result. A job that was checked
  // before was accepted: it has its room, whatever the tenant may use by now.
  virtual absl::StatusOr<std::shared_ptr<Inputs>> Prepare(const JobSpec& spec, const Owner& owner,
                                                          Values values) = 0;

  // The checks of Prepare that need no values. Inputs that the spec names are
  // looked up, the others are taken from `inputs`; what is not known is not
  // checked. Reserves nothing. Returns what the job needs of a device.
  virtual absl::StatusOr<DeviceNeed> Check(const JobSpec& spec, const InputSpecs& inputs) = 0;

  // Called on a worker thread. `report` may be called from that thread only.
  // A result with stop_cause kCancelled or kDeadline carries the best mask so
  // far; a result that lacks something that was asked for says so in
  // JobResult::incomplete.
  // Errors: Cancelled    stopped before there was a mask
  //         DEVICE_LOST  (a reason) the device is unusable until the server
  //                      restarts; Run may then be called once more with the same
  //                      inputs and another placement
  virtual absl::StatusOr<JobResult> Run(
      const Job& job, Inputs& inputs, const Placement& placement, const StopSignal& stop,
      const std::function<void(const ProgressReport&)>& report) = 0;

  // How far the checkpoint is that the job's last run has left; none: RunMark().
  virtual RunMark Saved(const std::string& job) const = 0;

  // The job has ended and the store knows: drop the tensors that belong to it alone.
  virtual void ReleaseInputs(const JobSpec& spec) = 0;

  // The job is being deleted or has expired, or runs once more: drop its result
  // tensors, also those that it does not name because the process ended before.
  virtual void Discard(const Job& job) = 0;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_JOBS_JOB_RUNNER_H_
