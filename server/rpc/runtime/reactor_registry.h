// Every RPC that is under way, so that a drain can end each of them.
//
// gRPC's callback server does not: a Shutdown with a deadline cancels what is
// left and then waits, without a limit, until every reactor has called Finish.
#ifndef SPARSEFW_SERVER_RPC_RUNTIME_REACTOR_REGISTRY_H_
#define SPARSEFW_SERVER_RPC_RUNTIME_REACTOR_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

class Call;

// Thread-safe.
//
//   serving -> BeginDrain -> draining -> CloseAll -> closed
//
// draining: new work is refused (Admit), what only reads goes on.
// closed:   every call is finished at once (Add returns false).
class ReactorRegistry {
 public:
  // False when closed: the call must finish with DrainingError.
  bool Add(const std::shared_ptr<Call>& call);
  void Remove(const Call* call);

  // OK, or DrainingError: for calls that bring new work.
  absl::Status Admit() const;

  // Tells every call that a drain has begun. Calls that would not end by
  // themselves finish.
  void BeginDrain();
  // Closes every call whose credentials no longer hold.
  void Recheck();
  // Ends what clients leave undone for too long; once a second.
  void Tick();
  // Finishes every call, and from now on every new one.
  void CloseAll();
  // Returns after `timeout` where there are still calls.
  void WaitUntilEmpty(absl::Duration timeout);

  bool draining() const;
  int64_t size() const;

 private:
  std::map<const Call*, std::shared_ptr<Call>> Snapshot() const;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<const Call*, std::weak_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_RPC_RUNTIME_REACTOR_REGISTRY_H_
