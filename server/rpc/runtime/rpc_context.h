// Dependencies of the RPC handlers. server/app chooses and owns them.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_RPC_CONTEXT_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_RPC_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/identity/authenticator.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/result_fetches.h"
#include "server/metrics/metrics.h"
#include "server/net/connections.h"
#include "server/net/fair_semaphore.h"
#include "server/rpc/runtime/executor.h"
#include "server/rpc/runtime/reactor_registry.h"
#include "server/rpc/runtime/timer.h"
#include "server/tensors/tensor_store.h"
#include "sparsefw/mutex.h"
#include "sparsefw/v1/prune_service.pb.h"

namespace sparsefw::server {

// Messages stay at or under 2 MiB; a little room for a message's framing, so
// that exactly 2 MiB of data still pass. gRPC answers RESOURCE_EXHAUSTED beyond.
inline constexpr int kMaxChunkBytes = 2 << 20;
inline constexpr int kMaxMessageBytes = kMaxChunkBytes + (64 << 10);

// Names in a request or response that its log line carries, as the client wrote them: neither
// checked nor bounded. Empty: none.
struct CallSubject {
  std::string request_id;
  std::string resource;  // "jobs/<id>", "tensors/<id>", "uploads/<id>"
};

// The name in a message, or that of the one resource in it; empty where it has none.
template <typename Message>
std::string ResourceOf(const Message& message) {
  if constexpr (requires { message.name(); }) {
    return message.name();
  } else if constexpr (requires {
                         message.upload().name();
                         message.tensor().name();
                       }) {
    return message.has_upload() ? message.upload().name() : message.tensor().name();
  } else {
    return "";
  }
}

template <typename Request>
CallSubject SubjectOf(const Request& request) {
  CallSubject subject;
  if constexpr (requires { request.request_id(); }) subject.request_id = request.request_id();
  subject.resource = ResourceOf(request);
  return subject;
}

// One ended RPC, for the log.
struct RpcRecord {
  std::string_view method;
  const absl::Status& status;
  absl::Duration duration;
  std::string peer;
  std::string_view tenant;  // empty: not known
  const CallSubject& subject;
  std::string_view traceparent;  // empty: the call has none
};

// What GetServerInfo reports of the program, its configuration and its machine.
struct ServerFacts {
  v1::ServerInfo info;  // what never changes, with the settings that every client may see
  absl::Time start_time;
  absl::Time steady_start_time;  // the same in steady time
  // With the free memory as far as it is known without asking a driver.
  std::function<std::vector<v1::Device>()> devices;
};

// The threads that calls work on, by kind of work. Each kind has its own, so that the quick never
// wait for the long, nor those that wait for the disk for those that compute.
struct CallThreads {
  // `io_threads`: those that one caller may hold of `data`, and of `sums`.
  explicit CallThreads(int io_threads) : data(io_threads), sums(io_threads) {}
  // Work moves from one to another until its call ends: all live until none has any.
  ~CallThreads() {
    int64_t posted = -1;
    for (int64_t before = -2; posted != before;) {
      before = posted;
      posted = quick.AwaitIdle() + jobs.AwaitIdle() + data.AwaitIdle() + sums.AwaitIdle();
    }
  }
  std::vector<ExecutorGauges> gauges() const {
    std::vector<ExecutorGauges> all = {quick.usage(), jobs.usage(), data.usage(), sums.usage()};
    for (size_t i = 0; i < all.size(); ++i) all[i].name = kNames[i];
    return all;
  }

  static constexpr std::array<std::string_view, 4> kNames = {"quick", "jobs", "data", "sums"};
  // Four of one caller. A `quick` thread waits for the disk most of its time, and writers
  // share a sync.
  Executor quick{4};  // one job: a row of the job store
  Executor jobs{4};   // validation of jobs, lists of jobs
  Executor data;      // tensors: spool reads and writes
  Executor sums;      // Gram sums
};

// Jobs or uploads that several calls work on together. Counts the calls of each name: the last one
// cleans up. Thread-safe.
class SharedNames {
 public:
  void Enter(const std::string& name) {
    MutexLock lock(mutex_);
    ++calls_[name];
  }
  // Ends an Enter. True: no other call is left.
  bool Leave(const std::string& name) {
    MutexLock lock(mutex_);
    const auto found = calls_.find(name);
    if (--found->second > 0) return false;
    calls_.erase(found);
    return true;
  }

 private:
  Mutex mutex_;
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
};

// All pointers outlive every RPC.
struct RpcContext {
  const Authenticator* authenticator = nullptr;
  TensorStore* tensors = nullptr;
  FairSemaphore* staging = nullptr;
  JobManager* jobs = nullptr;
  Metrics* metrics = nullptr;
  ReactorRegistry* registry = nullptr;
  const Connections* connections = nullptr;
  ResultFetches* fetches = nullptr;
  Timer* timer = nullptr;
  ServerFacts facts;
  std::function<void(const RpcRecord&)> log;
  std::atomic<int64_t> watchers{0};
  SharedNames sums;  // uploads that SumGrams is making
  // Tenant, request id and body of open Prune streams. Those with the same share one job: a client
  // that repeats a broken call must not lose it because the server notices late that the first is
  // gone.
  SharedNames prune_streams;
  std::unique_ptr<CallThreads> threads;  // the last member: their work ends before the rest
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_RPC_CONTEXT_H_
