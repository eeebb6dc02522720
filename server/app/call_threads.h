// The threads that calls work on, by kind of work.
#ifndef SPARSEFW_SERVER_APP_CALL_THREADS_H_
#define SPARSEFW_SERVER_APP_CALL_THREADS_H_

#include <vector>

#include "server/metrics/metrics.h"
#include "server/rpc/runtime/executor.h"
#include "server/rpc/runtime/rpc_context.h"

namespace sparsefw::server {

class CallThreads {
 public:
  // `io_threads`: those that one caller may hold of `data`, and of `sums`.
  explicit CallThreads(int io_threads) : data_(io_threads), sums_(io_threads) {}

  void FillContext(RpcContext& context);
  std::vector<ExecutorGauges> gauges() const;

 private:
  // Four of one caller. A `quick` thread waits for the disk most of its time, and writers
  // share a sync.
  Executor quick_{4};
  Executor jobs_{4};
  Executor data_;
  Executor sums_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_APP_CALL_THREADS_H_
