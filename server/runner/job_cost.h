// How much a job will compute.
#ifndef SPARSEFW_SERVER_RUNNER_JOB_COST_H_
#define SPARSEFW_SERVER_RUNNER_JOB_COST_H_

#include <cstdint>

#include "server/jobs/job.h"

namespace sparsefw::server {

// Floating-point operations of all points of the job on a weight of [rows, cols], for
// JobRunner::Inputs::cost: the leading terms of the dense products, and for every step
// of SPARSEFW a few passes over the weight. It does not know how many steps a gap will
// leave out, nor how many of a product the engines save.
double JobCost(const JobSpec& spec, int64_t rows, int64_t cols);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RUNNER_JOB_COST_H_
