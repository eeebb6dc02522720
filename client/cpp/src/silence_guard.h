// Ends a stream on which nothing comes any more.
#ifndef SPARSEFW_CLIENT_SRC_SILENCE_GUARD_H_
#define SPARSEFW_CLIENT_SRC_SILENCE_GUARD_H_

#include <grpcpp/client_context.h>

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "sparsefw/mutex.h"

namespace sparsefw::client::internal {

// A server that vanished without closing its connection (power, a pulled
// cable) leaves a Read waiting: only the missing heartbeats tell. While it
// lives it cancels the RPC once Heard has not been called for `limit`.
class SilenceGuard {
 public:
  SilenceGuard(absl::Duration limit, grpc::ClientContext* context);
  ~SilenceGuard();
  SilenceGuard(const SilenceGuard&) = delete;
  SilenceGuard& operator=(const SilenceGuard&) = delete;

  void Heard();
  // It has cancelled the RPC.
  bool silent() const;

 private:
  void Watch();

  const absl::Duration limit_;
  grpc::ClientContext* const context_;
  mutable Mutex mutex_;
  CondVar ended_;
  absl::Time give_up_ ABSL_GUARDED_BY(mutex_);
  bool end_ ABSL_GUARDED_BY(mutex_) = false;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sparsefw::client::internal

#endif  // SPARSEFW_CLIENT_SRC_SILENCE_GUARD_H_
