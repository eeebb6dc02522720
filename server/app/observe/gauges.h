// Metrics that are read off the stores and the queue when they are scraped.
#ifndef SPARSEFW_SERVER_APP_OBSERVE_GAUGES_H_
#define SPARSEFW_SERVER_APP_OBSERVE_GAUGES_H_

#include <string_view>

#include "server/app/observe/job_counts.h"
#include "server/jobs/job_manager.h"
#include "server/metrics/metrics.h"
#include "server/rpc/runtime/executor.h"
#include "server/tensors/tensor_store.h"

namespace sparsefw::server {

void SetTensorGauges(const TensorStoreUsage& usage, Gauges& gauges);

void SetJobGauges(const JobManager& jobs, JobCounts& counts, Gauges& gauges);

ExecutorGauges ExecutorGaugesOf(std::string_view name, const Executor::Usage& usage);

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_OBSERVE_GAUGES_H_
