// Where a job may run, how much it will compute and how much memory it needs.
#ifndef SPARSEFW_SERVER_RUNNER_JOB_NEEDS_H_
#define SPARSEFW_SERVER_RUNNER_JOB_NEEDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job.h"
#include "server/tensors/tensor_spec.h"
#include "sparsefw/backend.h"
#include "sparsefw/dtype.h"

namespace sparsefw::server {

// The backends of ResolveDevices that may run the job. Work that a CUDA device lacks
// (Backend::CheckPrune) would run on the CPU: it must not hold a stream and
// memory of the device, and its job must not say that it ran there. Errors: OPTION_INVALID, and
// those of ResolveDevices.
absl::StatusOr<std::vector<const Backend*>> PlaceJob(const JobSpec& spec,
                                                     const std::vector<const Backend*>& usable,
                                                     const std::vector<const Backend*>& otherwise);

// Whether engines of `backend` read the Gram as it was uploaded, and so the copy on the device that
// other jobs use. With a shrinkage they make one of their own from it, or take one from the host.
bool SharesGram(const JobSpec& spec, const Backend& backend);

// Floating-point operations of all points of the job on a weight of [rows, cols], for
// JobRunner::Inputs::cost: the leading terms of the dense products, and for every step
// of SPARSEFW a few passes over the weight. It does not know how many steps a gap will
// leave out, nor how many of a product the engines save.
double JobCost(const JobSpec& spec, int64_t rows, int64_t cols);

// Bytes of host memory while it runs: the most that any point needs, and what is kept of the
// others. In a sweep an engine still holds its copies of the layer while SparseGPT works.
int64_t WorkingBytes(const Backend& backend, const JobSpec& spec, int64_t rows, int64_t cols,
                     DType gram);

// Bytes of device memory, without a Gram that jobs share where it `shares` one. The engine of a
// sweep uses the precision of the first point.
int64_t DeviceBytes(const Backend& backend, const JobSpec& spec, const MatrixSpec& weights,
                    DType gram, bool shares);

// HOST_MEMORY where a job that needs `needed` bytes can never run: `limit` is for all
// running jobs together.
absl::Status CheckHostMemory(int64_t rows, int64_t cols, int64_t needed, int64_t limit);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_JOB_NEEDS_H_
