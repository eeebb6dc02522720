#include "server/app/call_threads.h"

#include <utility>

namespace sparsefw::server {

void CallThreads::FillContext(RpcContext& context) {
  context.quick_executor = &quick_;
  context.jobs_executor = &jobs_;
  context.data_executor = &data_;
  context.sums_executor = &sums_;
}

std::vector<ExecutorGauges> CallThreads::gauges() const {
  std::vector<ExecutorGauges> gauges;
  for (const auto& [name, executor] : {std::pair("quick", &quick_), std::pair("jobs", &jobs_),
                                       std::pair("data", &data_), std::pair("sums", &sums_)}) {
    const Executor::Usage usage = executor->usage();
    gauges.push_back({.name = name,
                      .queued = usage.queued,
                      .oldest_wait = absl::FromChrono(usage.oldest_wait),
                      .begun = usage.begun,
                      .withdrawn = usage.withdrawn});
  }
  return gauges;
}

}  // namespace sparsefw::server
